// urocectl show events.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "admin/page.h"
#include "control/state/state.h"

namespace uroce::admin {

/// One object for each event that the workers have recorded of QPs that the viewer may see, by worker, oldest first
/// (query.h, "events").
nlohmann::ordered_json list_events(const control::ControlState& state, Page& page);

}  // namespace uroce::admin
