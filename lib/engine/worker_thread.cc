#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "engine/log.h"
#include "engine/worker_loop.h"

namespace uroce::engine {
namespace {

/// struct sched_attr of the kernel, version 0.
struct SchedAttr {
  std::uint32_t size = sizeof(SchedAttr);
  std::uint32_t policy = SCHED_OTHER;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime = 0;
  std::uint64_t deadline = 0;
  std::uint64_t period = 0;
};

}  // namespace

void set_slice(Slice slice) {
  SchedAttr attr;
  attr.runtime = slice == Slice::kShort ? 100 * kMicrosecond : 0;
  ::syscall(SYS_sched_setattr, 0, &attr, 0);
}

void prepare_worker_thread(const WorkerConfig& config) {
  char name[16];
  std::snprintf(name, sizeof(name), "worker-%u", config.index);
  ::pthread_setname_np(::pthread_self(), name);
  ::prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  set_slice(Slice::kShort);
  if (config.cpu < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(config.cpu), &set);
  if (const int error = ::pthread_setaffinity_np(::pthread_self(), sizeof(set), &set); error != 0) {
    log(LogLevel::kWarning, "worker %u can't run on CPU %d (%s); see taskset -p for what is allowed", config.index,
        config.cpu, std::strerror(error));
  }
}

}  // namespace uroce::engine
