#include "worker/command_trace.h"

#include <algorithm>

#include "platform/clock.h"

namespace uroce::daemon {

void CommandTrace::run(const WorkerCommandRef& command, WorkerCore& worker) {
  TracedCommand record;
  record.name = command.name();
  // Before it runs: arguments may be objects that the command consumes.
  command.describe(record.arguments);
  record.started = monotonic_now();
  command.run(worker);
  record.duration = monotonic_now() - record.started;
  std::lock_guard lock(mutex_);
  ring_[count_++ % kKept] = record;
}

std::vector<TracedCommand> CommandTrace::last() const {
  std::lock_guard lock(mutex_);
  std::vector<TracedCommand> out;
  for (std::size_t i = count_ - std::min(count_, kKept); i < count_; ++i) out.push_back(ring_[i % kKept]);
  return out;
}

}  // namespace uroce::daemon
