// urocectl show settings.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "admin/page.h"
#include "control/state.h"

namespace uroce::daemon {

/// One object for each setting (query.h, "settings"), with what urocectl has changed since the start.
nlohmann::ordered_json list_settings(const ControlState& state, Page& page);

}  // namespace uroce::daemon
