// Whether a client's process holds a capability.
#pragma once

#include "control/session.h"

namespace uroce::daemon {

/// Whether the process has CAP_NET_RAW over this daemon's network, as packet(7) requires: effective, and in the
/// daemon's user namespace. False where that cannot be determined, and where the capability comes from the program
/// (setuid, file capabilities): the user may have opened the socket before the program was executed.
bool may_use_raw_packets(const Peer& peer);

}  // namespace uroce::daemon
