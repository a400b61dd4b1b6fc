#include "worker/command_trace.h"

#include <algorithm>

#include "worker/worker.h"

namespace uroce::worker {

void CommandTrace::run(const WorkerCommandRef& command, WorkerCore& worker) {
  TracedCommand record;
  record.name = command.name();
  // Before it runs: arguments may be objects that the command consumes.
  command.describe(record.arguments);
  record.started = clock_();
  worker.section().start_command(record.started);
  command.run(worker);
  record.duration = clock_() - record.started;
  std::lock_guard lock(mutex_);
  ring_[count_++ % kKept] = record;
}

std::vector<TracedCommand> CommandTrace::last() const {
  std::lock_guard lock(mutex_);
  std::vector<TracedCommand> out;
  for (std::size_t i = count_ - std::min(count_, kKept); i < count_; ++i) out.push_back(ring_[i % kKept]);
  return out;
}

}  // namespace uroce::worker
