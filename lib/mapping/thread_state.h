#pragma once

#include <sys/types.h>

namespace uroce::daemon {

/// Whether a thread of this process is blocked in the kernel, rather than waiting for a processor. 0: a thread that
/// has not started yet.
bool is_blocked_in_kernel(pid_t thread);

/// Whether a thread of this process sleeps uninterruptibly, as in a page fault. 0: a thread that has not started
/// yet.
bool waits_for_pages(pid_t thread);

}  // namespace uroce::daemon
