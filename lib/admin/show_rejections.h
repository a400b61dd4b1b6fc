// urocectl show rejections.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "admin/viewer.h"
#include "control/state.h"

namespace uroce::daemon {

/// One object for each kept refusal of the viewer's tenant, or of all for an administrator (query.h, "rejections").
nlohmann::ordered_json show_rejections(const ControlState& state, Viewer& viewer);

}  // namespace uroce::daemon
