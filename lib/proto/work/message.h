// The parts of receiving a SEND or WRITE that RC, XRC and UC have in common.
#pragma once

#include <cstdint>

#include "proto/state/context.h"
#include "wire/packet.h"

namespace uroce::proto {

/// Whether the packet starts or continues a message of this kind, with a valid payload length: FIRST and MIDDLE a
/// full MTU, LAST at least a byte, none more than the MTU (IBTA vol. 1, 9.7.4.1, C9-92).
bool well_formed(const Qp& qp, const wire::RxPacket& packet, MessageInProgress kind);
/// Completes the receive of a message of `bytes` bytes that ends with this packet.
void deliver(Context& context, Qp& qp, const wire::RxPacket& packet, std::uint8_t opcode, std::uint32_t bytes);
/// Writes the payload of a WRITE packet. False: the memory is not writable.
bool store(Context& context, Qp& qp, const wire::RxPacket& packet);

inline bool starts(const wire::OpcodeInfo& info) { return info.has(wire::kFirst | wire::kOnly); }
inline bool ends(const wire::OpcodeInfo& info) { return info.has(wire::kLast | wire::kOnly); }

}  // namespace uroce::proto
