// All counters and gauges of the daemon, with their meaning, for monitoring (`urocectl metrics`, docs/metrics.md).
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "admin/viewer.h"
#include "cm_service/service.h"
#include "control/diagnosis/command_times.h"
#include "control/state/state.h"

namespace uroce::admin {

/// The page of query.h, "metrics", that the request asks for. The number of samples depends on the numbers of
/// workers and users, not of QPs.
nlohmann::ordered_json metrics_page(const control::ControlState& state, const cm_service::CmService& cm,
                                    const control::CommandTimes& command_times, Viewer& viewer,
                                    const nlohmann::ordered_json& request);

}  // namespace uroce::admin
