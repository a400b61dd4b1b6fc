// All counters and gauges of the daemon, with their meaning, for monitoring (`urocectl metrics`, docs/metrics.md).
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "admin/viewer.h"
#include "cm_service/service.h"
#include "control/command_times.h"
#include "control/state.h"

namespace uroce::daemon {

/// The families of query.h, "metrics". Each is in every answer, with samples where there are any; their number
/// depends on the numbers of workers and users, not of QPs. Takes one command on each worker, and another for each
/// 256 QPs that the viewer sees.
nlohmann::ordered_json metric_families(const ControlState& state, const CmService& cm,
                                       const CommandTimes& command_times, Viewer& viewer);

}  // namespace uroce::daemon
