// The process at the other end of a Unix socket (SO_PEERCRED and SO_PEERPIDFD, unix(7)).
#pragma once

#include <sys/types.h>

#include "platform/unique_fd.h"

namespace uroce::platform {

/// A file in /proc/PID/ns; all zero: unknown (namespaces(7)).
struct NamespaceId {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const NamespaceId&) const = default;
  bool known() const { return inode != 0; }
};

/// A user within its user and PID namespaces: the owner of its clients' objects. The same user number in a
/// container is another tenant.
struct Tenant {
  uid_t uid = 0;
  NamespaceId user_ns, pid_ns;
  bool operator==(const Tenant&) const = default;
};

struct Peer {
  pid_t pid = 0;
  uid_t uid = 0;
  UniqueFd pidfd;  ///< invalid: the process could not be identified, so it gets no indirect memory
  gid_t gid = 0;
  NamespaceId user_ns, pid_ns;

  Tenant tenant() const { return {uid, user_ns, pid_ns}; }
};

}  // namespace uroce::platform
