// The connection management sections of `urocectl show` and `urocectl stat`.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "admin/page.h"
#include "cm_service/service.h"
#include "control/state.h"

namespace uroce::admin {

/// One object for each id (query.h, "cm_ids").
nlohmann::ordered_json list_cm_ids(const control::ControlState& state, Page& page);

/// Counters of the general services interface (QP 1) and of the connection manager.
nlohmann::ordered_json cm_counters(const control::ControlState& state, const cm_service::CmService& cm);

}  // namespace uroce::admin
