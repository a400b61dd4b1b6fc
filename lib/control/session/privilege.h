// Whether a client's process holds a capability.
#pragma once

#include <cstdint>

#include "control/session/session.h"

namespace uroce::control {

// A capability counts if it is effective, in the daemon's user namespace, and not lent by the program (setuid, file
// capabilities): the user may have opened the socket before the program was executed. A container's root has none
// of the capabilities asked for here, or has them in a namespace of its own. False where that cannot be determined.

/// Whether the process has CAP_NET_RAW over this daemon's network, as packet(7) requires: in the daemon's network
/// namespace, or together with CAP_SYS_ADMIN, which may enter that namespace.
bool may_use_raw_packets(const platform::Peer& peer);
/// Whether the request that is being executed comes from such a process.
inline bool may_use_raw_packets(const Session& session) {
  return session.from_peer && may_use_raw_packets(session.peer);
}

/// Whether the process has CAP_NET_BIND_SERVICE over this daemon's network, as ip(7) requires for low ports.
bool may_use_low_ports(const platform::Peer& peer);
inline bool may_use_low_ports(const Session& session) {
  return session.from_peer && may_use_low_ports(session.peer);
}
/// net.ipv4.ip_unprivileged_port_start of the daemon's network namespace; 1024 where it cannot be read.
std::uint16_t first_unprivileged_port();

/// Whether the process may see the objects of all tenants and change the port: it has CAP_NET_ADMIN in the daemon's
/// network namespace, or CAP_SYS_ADMIN, or it runs as the user of a daemon that is not root, outside containers.
bool may_administer(const platform::Peer& peer);
inline bool may_administer(const Session& session) { return session.from_peer && may_administer(session.peer); }

/// Reads the namespaces of the process. They stay unknown for a process that the daemon may not inspect.
void read_namespaces(platform::Peer& peer);

}  // namespace uroce::control
