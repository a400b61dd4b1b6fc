// fork(2) needs no preparation (ibv_fork_init(3)): the child gets private copies of registered memory, and shares
// its parent's contexts but for queues and memory (client/session.h, page_sharing/page_sharing.h).
#include <infiniband/verbs.h>

#include <cstddef>

#include "export.h"

UROCE_EXPORT int ibv_fork_init() { return 0; }
UROCE_EXPORT ibv_fork_status ibv_is_fork_initialized() { return IBV_FORK_UNNEEDED; }
UROCE_EXPORT int ibv_dontfork_range(void*, std::size_t) { return 0; }
UROCE_EXPORT int ibv_dofork_range(void*, std::size_t) { return 0; }
