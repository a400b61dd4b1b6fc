// urocectl show settings.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "admin/page.h"
#include "control/state/state.h"

namespace uroce::admin {

/// One object for each setting (query.h, "settings"), with what urocectl has changed since the start.
nlohmann::ordered_json list_settings(const control::ControlState& state, Page& page);

}  // namespace uroce::admin
