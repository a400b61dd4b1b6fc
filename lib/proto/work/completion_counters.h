// Counts how the operations of a QP end (proto/state/completion_counters.h): each once, before its completion is
// visible in a CQ, signaled or not.
#pragma once

#include <cstdint>

#include "proto/state/qp.h"

namespace uroce::proto {

/// `table` is the QP's from now on; `operations`: uroce_counted_operation, those that `counter` counts.
void attach_counter(Qp& qp, QpCompletionCounters& table, std::uint32_t operations,
                    const CompletionCounter& counter);

/// Whether the QP's receives are counted.
bool counts_receives(const Qp& qp);

/// What a send queue's operation is counted as; kNone: atomics, ATOMIC WRITE, FLUSH and local operations.
CountedOperation counted_as(std::uint8_t opcode);

/// Of a QP that has counters.
void count_done(const Qp& qp, CountedOperation operation, std::uint32_t bytes);
/// Of any QP.
void count_failed(const Qp& qp, CountedOperation operation);

}  // namespace uroce::proto
