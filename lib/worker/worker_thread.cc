// Prepares the thread that runs WorkerLoop::run().
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "platform/log.h"
#include "platform/scheduling.h"
#include "worker/worker_loop.h"

namespace uroce::daemon {

void WorkerCore::note_thread() {
  thread_id_.store(static_cast<pid_t>(::syscall(SYS_gettid)), std::memory_order_relaxed);
}

void prepare_worker_thread(const WorkerConfig& config) {
  char name[16];
  std::snprintf(name, sizeof(name), "worker-%u", config.index);
  name_thread(name);
  remove_timer_slack();
  set_sched_slice(SchedSlice::kShort);
  if (config.cpu < 0) return;
  if (const int error = pin_to_cpu(static_cast<std::uint32_t>(config.cpu)); error != 0) {
    log(LogLevel::kWarning, "worker %u can't run on CPU %d (%s); see taskset -p for what is allowed", config.index,
        config.cpu, std::strerror(error));
  }
}

}  // namespace uroce::daemon
