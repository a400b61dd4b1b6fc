// The parts of receiving a SEND or WRITE that RC, XRC and UC have in common.
#pragma once

#include <cstdint>

#include "proto/state/context.h"
#include "wire/packet.h"

namespace uroce::proto {

inline bool starts(const wire::OpcodeInfo& info) { return info.has(wire::kFirst | wire::kOnly); }
inline bool ends(const wire::OpcodeInfo& info) { return info.has(wire::kLast | wire::kOnly); }

/// Whether the packet starts or continues a message of this kind, with a valid payload length for each of its PSNs:
/// FIRST and MIDDLE a full MTU, LAST at least a byte, none more than the MTU (IBTA vol. 1, 9.7.4.1, C9-92).
inline bool well_formed(const Qp& qp, const wire::RxPacket& packet, MessageInProgress kind) {
  const wire::OpcodeInfo& info = *packet.info;
  if (qp.responder.message != (starts(info) ? MessageInProgress::kNone : kind)) return false;
  const std::uint32_t room = std::uint32_t{packet.psns} << qp.common.mtu_shift;
  if (packet.payload_bytes > room) return false;
  if (ends(info)) return !info.has(wire::kLast) || packet.payload_bytes != 0;
  return packet.payload_bytes == room;
}

// The rules for a packet of a WRITE and of a READ response. Placement (direct_placement.h) and execution both ask
// them, so that no byte is written for a packet that is then refused.

/// Whether the packet may belong to a WRITE. The rights of the QP count for each packet: they may change in the
/// middle of a message.
inline bool may_write(const Qp& qp, const wire::RxPacket& packet) {
  return well_formed(qp, packet, MessageInProgress::kWrite) && (qp.responder.access & memory::kRemoteWrite) != 0;
}
/// Whether the payload is what the length in the RETH leaves for it (IBTA vol. 1, 9.7.4.1.6).
inline bool fits_write(const Qp& qp, const wire::RxPacket& packet) {
  return ends(*packet.info) ? packet.payload_bytes == qp.write.left : packet.payload_bytes < qp.write.left;
}

/// The packet of a READ response with the PSN una, or with several from una on, to the WQE at head.
struct ResponsePart {
  std::uint32_t index;  ///< in the response to the whole WQE
  std::uint32_t bytes;
  bool last;  ///< of the WQE
  bool ends;  ///< the last of a request

  bool matches(const wire::RxPacket& packet) const {
    return packet.payload_bytes == bytes && ends == packet.info->has(wire::kLast | wire::kOnly);
  }
};
inline ResponsePart due_response(const Qp& qp, const Wqe& wqe, std::uint32_t psns = 1) {
  ResponsePart part;
  part.index = psns_between(wqe.first(), qp.requester.una);
  const std::uint32_t next = part.index + psns;
  part.last = next == wqe.psn_count;
  part.ends = part.last || (next & (qp.reads.chunk_at(qp.requester.una) - 1)) == 0;
  part.bytes = part.last ? wqe.window_bytes() - (part.index << qp.common.mtu_shift) : psns << qp.common.mtu_shift;
  return part;
}

/// Completes the receive of a message of `bytes` bytes that ends with this packet.
void deliver(Context& context, Qp& qp, const wire::RxPacket& packet, std::uint8_t opcode, std::uint32_t bytes);
/// Writes the payload of a WRITE packet. False: the memory is not writable.
bool store(Context& context, Qp& qp, const wire::RxPacket& packet);

}  // namespace uroce::proto
