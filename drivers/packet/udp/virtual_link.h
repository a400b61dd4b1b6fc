// The Ethernet link that a port of sockets pretends to have. The kernel finds the real neighbours; here each IP
// address has a MAC address that is computed from it, so that link stack and transport see an ordinary port.
#pragma once

#include "base/frame.h"
#include "wire/address.h"

namespace uroce::udp {

/// Locally administered. 02:00 and the address for IPv4, 02 and a hash for IPv6; never `own`.
wire::Mac mac_of(const wire::Address& address, const wire::Mac& own);

/// Turns an ARP request or a neighbour solicitation into its answer, in place. False: it is neither, or asks for
/// the sender's own address, which a port announces.
bool answer(base::Frame& frame, const wire::Mac& own);

}  // namespace uroce::udp
