// Packets between QPs of one process that name their payload instead of carrying it (base::PayloadReference): the
// receiver checks key, protection domain and range again, and copies once, straight into place. One such packet
// takes as many PSNs as the payload would have packets. All else is as with payload: order, checks, acknowledges,
// window.
//
// The two QPs belong to one worker thread, of one device or of two on a switch in memory, so that nothing is copied
// any more once the sender's program knows that its work requests have ended, with an error or a reset of the QP.
//
// Only what is sent for the first time is named. What is sent again carries its payload, so that memory that has
// gone fails its work request where it always does.
#pragma once

#include <cstdint>
#include <optional>

#include "base/frame.h"
#include "proto/state/context.h"
#include "proto/work/data_packet.h"
#include "wire/packet.h"

namespace uroce::proto {

/// Bytes of payload that one packet names at most: how long a duty cycle may become limits them.
inline constexpr std::uint32_t kMaxReference = 64u << 10;
/// Shorter messages are copied, which takes less time than checking their key twice.
inline constexpr std::uint32_t kMinReference = 1024;

/// Whether packets of this QP may name their payload now.
inline bool may_refer(const Context& context, const Qp& qp) {
  if (!context.references || qp.common.peer_sender == 0 || qp.common.type != QpType::kRc) return false;
  const Context* const peer = context.local->context_of(qp.common.peer_sender);
  return peer != nullptr && peer->references && peer->by_qpn.find(qp.common.dest_qpn) != QpnTable::kNone;
}

/// Extends the part at requester.psn of a SEND or WRITE to up to `budget` packets that fit the window, and names
/// it. nullopt: it has to be copied, and `part` is as it was.
std::optional<base::PayloadReference> refer(Context& context, Qp& qp, const Wqe& wqe, std::uint32_t budget,
                                            DataPart& part);

/// The same for up to `bytes` of a READ response from `address` on.
std::optional<base::PayloadReference> refer(Context& context, const Qp& qp, const Resource& resource,
                                            std::uint64_t address, std::uint32_t bytes, std::uint32_t budget);

/// Replaces the reference in a packet by the payload, Context::source, and sets its PSNs. False: the packet is
/// lost, as the memory is gone, or cannot be reached directly any more, or the sender has ended.
bool resolve_reference(Context& context, const Qp& qp, wire::RxPacket& packet);
/// The payload of such a packet has been used, and the packet is one without reference again.
void end_reference(Context& context, wire::RxPacket& packet);

/// After the payload was copied: whether it came by reference and its memory was gone by then. What was copied is
/// undefined, and the packet is lost: it changed nothing else.
inline bool lost_payload(Context& context, const wire::RxPacket& packet) {
  if (!packet.by_reference() || context.source.reached(0, packet.payload_bytes)) [[likely]]
    return false;
  ++context.counters.drop_reference;
  return true;
}

}  // namespace uroce::proto
