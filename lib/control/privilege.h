// What a client's process may do beyond its user's rights.
#pragma once

#include "control/session.h"

namespace uroce::daemon {

/// Whether it has CAP_NET_RAW over this daemon's network, as packet(7) wants it: effective, and in the user
/// namespace of the daemon. False also where that can't be told, and when the rights are those of a program with
/// more than its user has (setuid, file capabilities): the user could have kept the socket when it was executed.
bool may_use_raw_packets(const Peer& peer);

}  // namespace uroce::daemon
