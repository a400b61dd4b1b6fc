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

/// Whether the payload is what `left` bytes of a WRITE leave for it (IBTA vol. 1, 9.7.4.1.6).
inline bool fits_write(const wire::RxPacket& packet, std::uint32_t left) {
  return ends(*packet.info) ? packet.payload_bytes == left : packet.payload_bytes < left;
}

/// Completes the receive of a message of `bytes` bytes that ends with this packet.
void deliver(Context& context, Qp& qp, const wire::RxPacket& packet, std::uint8_t opcode, std::uint32_t bytes);

}  // namespace uroce::proto
