// Where the payload of a WRITE or READ goes can be known before its ICRC is: then one pass over it does both.
//
// Only the packet that is due next, from the right peer, is placed like that, and never a message's first, whose
// place the packet itself names. If its ICRC is bad, it has left garbage where the packet that is really due will
// be written, and nothing else has happened. A program can't see that in a message that completes, nor can one
// that waits for a message's last bytes: those are held back. SENDs are not placed early, since their length isn't
// known: garbage could stay behind their end.
#pragma once

#include "proto/state/context.h"

namespace uroce::proto {

inline constexpr std::uint32_t kDeferredTail = 64;         ///< bytes of a message that wait until all is good
inline constexpr std::uint32_t kMinDirectPlacement = 256;  ///< bytes of payload: less isn't worth it

/// Checks a pending ICRC, and places the payload in the same pass if it can: kOk or kBadIcrc.
wire::ParseVerdict verify_and_place(Context& context, const Qp& qp, wire::RxPacket& packet);

}  // namespace uroce::proto
