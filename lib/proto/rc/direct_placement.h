// Places payload while its ICRC is computed, in one pass, when its destination is known before the packet is
// verified.
//
// Only the packet that is expected next, from the right peer, is placed like this, and never the first of a
// message, whose destination is in the packet itself. All others are verified before anything is planned for them.
// If the ICRC is bad, nothing happened except that garbage was written where the valid packet will be written. A
// program cannot see it in a message that has completed; nor can a program that polls the last bytes of a message,
// since those are held back. SENDs are not placed early: their length is unknown, and garbage could remain after
// their end.
#pragma once

#include "proto/rc/acceptance.h"
#include "proto/state/context.h"
#include "wire/packet.h"

namespace uroce::proto {

inline constexpr std::uint32_t kDeferredTail = 64;         ///< bytes of a message that are written after the check
inline constexpr std::uint32_t kMinDirectPlacement = 256;  ///< bytes of payload; shorter ones are not worth it

/// Whether the payload of a packet with a pending ICRC may have its place already.
inline bool may_be_placed(const Qp& qp, const wire::RxPacket& packet) {
  const Psn expected = packet.info->has(wire::kResponse) ? qp.requester.una : qp.responder.epsn;
  return packet.payload_bytes >= kMinDirectPlacement && packet.bth.psn == expected;
}

/// For packets that may be placed. Checks the pending ICRC, and places the payload in the same pass if it can: kOk
/// or kBadIcrc.
wire::ParseVerdict verify_and_place(Context& context, const Qp& qp, const Plan& plan, wire::RxPacket& packet);

}  // namespace uroce::proto
