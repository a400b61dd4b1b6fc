#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "platform/log.h"
#include "worker/worker_loop.h"

namespace uroce::daemon {
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

void set_sched_slice(SchedSlice slice) {
  SchedAttr attr;
  attr.runtime = slice == SchedSlice::kShort ? 100 * kMicrosecond : 0;
  ::syscall(SYS_sched_setattr, 0, &attr, 0);
}

void move_to_core(std::uint32_t number) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  auto skip = number % static_cast<std::uint32_t>(CPU_COUNT(&allowed));
  for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || skip-- != 0) continue;
    if (::sched_getcpu() == static_cast<int>(cpu)) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ::sched_setaffinity(0, sizeof(one), &one);
    ::sched_setaffinity(0, sizeof(allowed), &allowed);
    return;
  }
}

void prepare_worker_thread(const WorkerConfig& config) {
  char name[16];
  std::snprintf(name, sizeof(name), "worker-%u", config.index);
  ::pthread_setname_np(::pthread_self(), name);
  ::prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  set_sched_slice(SchedSlice::kShort);
  if (config.cpu < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(config.cpu), &set);
  if (const int error = ::pthread_setaffinity_np(::pthread_self(), sizeof(set), &set); error != 0) {
    log(LogLevel::kWarning, "worker %u can't run on CPU %d (%s); see taskset -p for what is allowed", config.index,
        config.cpu, std::strerror(error));
  }
}

}  // namespace uroce::daemon
