// The parts of receiving a SEND or WRITE that RC, XRC and UC have in common.
#pragma once

#include <cstdint>

#include "proto/state/context.h"

namespace uroce::proto {

/// Whether the packet continues or starts a message of this kind as it may, with a payload as long as its place
/// wants: FIRST and MIDDLE a full MTU, LAST at least a byte, none more than the MTU.
bool well_formed(const Qp& qp, const wire::RxPacket& packet, MessageInProgress kind);
/// Completes the receive of a message of `bytes` that this packet ends.
void deliver(Context& context, Qp& qp, const wire::RxPacket& packet, std::uint8_t opcode, std::uint32_t bytes);
/// The part of a WRITE that this packet carries. False: it may not be written.
bool store(Context& context, Qp& qp, const wire::RxPacket& packet);

inline bool starts(const wire::OpcodeInfo& info) { return info.has(wire::kFirst | wire::kOnly); }
inline bool ends(const wire::OpcodeInfo& info) { return info.has(wire::kLast | wire::kOnly); }

}  // namespace uroce::proto
