// urocectl show flows.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "control/state.h"

namespace uroce::daemon {

/// One object a flow, as admin.h says.
nlohmann::ordered_json show_flows(const ControlState& state);

}  // namespace uroce::daemon
