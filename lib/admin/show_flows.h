// urocectl show flows.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "control/state.h"

namespace uroce::daemon {

/// One object for each flow (query.h, "flows").
nlohmann::ordered_json show_flows(const ControlState& state);

}  // namespace uroce::daemon
