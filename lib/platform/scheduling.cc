#include "platform/scheduling.h"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/types.h"

namespace uroce::platform {
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

int pin_to_cpu(std::uint32_t cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return ::pthread_setaffinity_np(::pthread_self(), sizeof(set), &set);
}

int unpin() {
  cpu_set_t set;
  if (::sched_getaffinity(::getpid(), sizeof(set), &set) != 0) return errno;
  return ::pthread_setaffinity_np(::pthread_self(), sizeof(set), &set);
}

void name_thread(const char* name) { ::pthread_setname_np(::pthread_self(), name); }

void remove_timer_slack() { ::prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); }

}  // namespace uroce::platform
