// urocectl show flows.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "admin/viewer.h"
#include "control/state.h"

namespace uroce::daemon {

/// One object for each flow (query.h, "flows").
nlohmann::ordered_json show_flows(const ControlState& state, Viewer& viewer);

}  // namespace uroce::daemon
