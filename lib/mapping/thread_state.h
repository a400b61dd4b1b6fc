#pragma once

#include <sys/types.h>

namespace uroce::daemon {

/// Whether a thread of ours waits in the kernel, rather than for a processor. 0 is one that has yet to begin.
bool is_blocked_in_kernel(pid_t thread);

}  // namespace uroce::daemon
