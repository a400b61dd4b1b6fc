// `urocectl latency`: how long work requests, wake-ups and duty cycles take, while that is measured.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "admin/page.h"
#include "control/state/state.h"
#include "proto/state/latency.h"
#include "worker/latency.h"

namespace uroce::admin {

struct CollectedLatency {
  proto::OperationLatencies operations;        ///< of all workers
  std::vector<worker::WorkerLatency> workers;  ///< by index
};
CollectedLatency collect_latency(const control::ControlState& state);

/// "SEND", as rules of `urocectl fault verbs` have it; empty: an operation that never completes.
std::string_view operation_name(std::size_t kind);

/// A row for each operation that has ended, then those of the workers, with what half, 90 %, 99 % and 99.9 % took
/// at most.
nlohmann::ordered_json list_latency(const control::ControlState& state, Page& page);

}  // namespace uroce::admin
