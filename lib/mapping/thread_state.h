#pragma once

#include <sys/types.h>

#include <cstdint>

namespace uroce::mapping {

/// Whether a thread of this process is blocked in the kernel, rather than waiting for a processor. 0: a thread that
/// has not started yet.
bool is_blocked_in_kernel(pid_t thread);

/// Whether a thread of this process sleeps uninterruptibly, as in a page fault. 0: a thread that has not started
/// yet.
bool waits_for_pages(pid_t thread);

/// How often a thread of this process has got a processor so far: as long as it is the same, a wait is the same. 0:
/// the kernel does not count it (CONFIG_SCHED_INFO).
std::uint64_t times_run(pid_t thread);

}  // namespace uroce::mapping
