// Where the payload of a WRITE or READ goes can be known before its ICRC is: then one pass over it does both.
//
// Only the packet that is due next, from the right peer, in the middle of a message, is placed like that. If its
// ICRC is bad, it has left garbage where the packet that is really due will be written, and nothing else has
// happened. A program can't see that in a message that completes, nor can one that waits for a message's last byte:
// LAST and ONLY packets are never placed early. Nor are SENDs, whose length isn't known: garbage could stay behind
// their end.
#pragma once

#include "proto/core.h"

namespace uroce::proto {

/// Checks the ICRC that wire::parse() left open, and places the payload on the way if it can. False: it is bad.
bool close_icrc(Core& core, const Qp& qp, wire::RxPacket& packet);

}  // namespace uroce::proto
