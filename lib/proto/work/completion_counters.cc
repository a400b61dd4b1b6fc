#include "proto/work/completion_counters.h"

#include <atomic>

namespace uroce::proto {
namespace {

// Release: who reads the count sees the data that came before it.
void add(std::uint64_t& count, std::uint64_t amount) {
  std::atomic_ref(count).fetch_add(amount, std::memory_order_release);
}

}  // namespace

void attach_counter(Qp& qp, QpCompletionCounters& table, std::uint32_t operations,
                    const CompletionCounter& counter) {
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    if ((operations >> i & 1) != 0) table[i] = counter;
  }
  qp.settings.counters = &table;
  if ((operations & (UROCE_COUNTED_SEND | UROCE_COUNTED_READ | UROCE_COUNTED_WRITE)) != 0) {
    qp.requester.reports |= kCountedReports;
  }
  if ((operations & UROCE_COUNTED_RECV) != 0) qp.receives.special_end = true;
  if ((operations & (UROCE_COUNTED_REMOTE_READ | UROCE_COUNTED_REMOTE_WRITE)) != 0) qp.responder.counted = true;
}

bool counts_receives(const Qp& qp) {
  if (qp.settings.counters == nullptr) return false;
  return (*qp.settings.counters)[static_cast<std::size_t>(CountedOperation::kReceive)].shared != nullptr;
}

CountedOperation counted_as(std::uint8_t opcode) {
  switch (abi::operation_of(opcode).kind) {
    case Kind::kSend:
    case Kind::kSegments: return CountedOperation::kSend;
    case Kind::kWrite: return CountedOperation::kWrite;
    case Kind::kRead: return CountedOperation::kRead;
    default: return CountedOperation::kNone;
  }
}

void count_done(const Qp& qp, CountedOperation operation, std::uint32_t bytes) {
  if (operation == CountedOperation::kNone) return;
  const CompletionCounter& counter = (*qp.settings.counters)[static_cast<std::size_t>(operation)];
  if (counter.shared != nullptr) add(counter.shared->done, counter.bytes ? bytes : 1);
}

void count_failed(const Qp& qp, CountedOperation operation) {
  if (qp.settings.counters == nullptr || operation == CountedOperation::kNone) return;
  const CompletionCounter& counter = (*qp.settings.counters)[static_cast<std::size_t>(operation)];
  if (counter.shared != nullptr) add(counter.shared->failed, 1);
}

}  // namespace uroce::proto
