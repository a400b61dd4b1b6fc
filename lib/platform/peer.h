// The process at the other end of a Unix socket (SO_PEERCRED and SO_PEERPIDFD, unix(7)).
#pragma once

#include <sys/types.h>

#include "platform/unique_fd.h"

namespace uroce::daemon {

struct Peer {
  pid_t pid = 0;
  uid_t uid = 0;
  UniqueFd pidfd;  ///< invalid: the process could not be identified, so it gets no indirect memory
  gid_t gid = 0;
};

}  // namespace uroce::daemon
