// urocectl show rejections.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "admin/page.h"
#include "control/state.h"

namespace uroce::daemon {

/// One object for each kept refusal of the viewer's tenant, or of all for an administrator (query.h, "rejections").
nlohmann::ordered_json list_rejections(const ControlState& state, Page& page);

}  // namespace uroce::daemon
