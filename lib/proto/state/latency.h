// How long send work requests take, by operation. One of each QP is measured at a time: a QP that measures none is
// not asked about it (Requester::reports).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "abi/operations.h"
#include "base/latency_histogram.h"
#include "base/types.h"

namespace uroce::proto {

/// By abi::OperationKind; those of kInvalid never complete.
using OperationLatencies =
    std::array<base::LatencyHistogram, static_cast<std::size_t>(abi::OperationKind::kSegments) + 1>;

/// The work request of a QP that is being measured.
struct LatencySample {
  Nanos since = 0;          ///< when its doorbell was rung
  std::uint32_t index = 0;  ///< in the send queue
};

}  // namespace uroce::proto
