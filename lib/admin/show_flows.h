// urocectl show flows.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "admin/page.h"
#include "control/state/state.h"

namespace uroce::admin {

/// One object for each flow (query.h, "flows").
nlohmann::ordered_json list_flows(const control::ControlState& state, Page& page);

}  // namespace uroce::admin
