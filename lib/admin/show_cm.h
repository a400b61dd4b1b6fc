// What urocectl tells of connection management.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "cm_service/service.h"
#include "control/state.h"

namespace uroce::daemon {

/// One object an id, as admin.h says.
nlohmann::ordered_json show_cm_ids(const ControlState& state);

/// The general services interface and the connection manager behind it: name to number.
nlohmann::ordered_json cm_counters(const ControlState& state, const CmService& cm);

}  // namespace uroce::daemon
