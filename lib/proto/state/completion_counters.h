// Completion counters of a QP (ibv_create_comp_cntr(3)). A QP that has none never asks for them: the tests that
// lead here are those for signaled WQEs (Requester::reports) and for XRC targets (ReceiveQueue::special_end).
#pragma once

#include <array>
#include <cstdint>

#include "abi/completion_counters.h"

namespace uroce::proto {

/// What has a counter of its own; the bit of each is in uroce_counted_operation.
enum class CountedOperation : std::uint8_t { kSend, kReceive, kRead, kRemoteRead, kWrite, kRemoteWrite, kNone };
static_assert(static_cast<std::uint32_t>(CountedOperation::kNone) == UROCE_COUNTED_OPERATIONS);
static_assert(UROCE_COUNTED_REMOTE_WRITE == 1 << static_cast<unsigned>(CountedOperation::kRemoteWrite));

/// The client may write the shared counts at any time; the daemon only adds to them.
struct CompletionCounter {
  uroce_comp_cntr* shared = nullptr;  ///< nullptr: these operations are not counted
  bool bytes = false;                 ///< of successful operations the length is added, else 1
};

/// By CountedOperation. Lives until the QP is destroyed.
using QpCompletionCounters = std::array<CompletionCounter, UROCE_COUNTED_OPERATIONS>;

}  // namespace uroce::proto
