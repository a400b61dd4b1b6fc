// The connection management section of `urocectl show`.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "admin/page.h"
#include "control/state/state.h"

namespace uroce::admin {

/// One object for each id (query.h, "cm_ids").
nlohmann::ordered_json list_cm_ids(const control::ControlState& state, Page& page);

}  // namespace uroce::admin
