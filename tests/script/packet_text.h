// Packets as scripts write them: `WRITE_ONLY psn=100 va=0x10000 rkey=mem len=64`. The fields are those of the
// headers that the opcode has, under the names that wire::dump() prints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/script/world.h"
#include "wire/frame_template.h"
#include "wire/opcode.h"
#include "wire/packet.h"

namespace uroce::script {

/// AETH syndromes (IBTA vol. 1, table 44).
extern const Names kSyndromes;

/// "SEND_ONLY", "NAK" (an acknowledge, too) or "CNP", of this service. SyntaxError lists what it has.
std::uint8_t opcode_of(const std::string& name, wire::Service service);
/// What a script calls the opcode: without the service.
std::string opcode_name(std::uint8_t opcode);
/// The fields of the opcode: of its headers, and of the packet below them.
std::vector<std::string> packet_fields(std::uint8_t opcode);

using ValueOf = std::function<std::uint64_t(const Field&)>;

/// A frame of that opcode. What the line does not name: no flags, P_Key 0xffff, payload bytes of 0, the RETH's
/// length that of the payload. `path`: from the script's side to ours.
std::vector<std::byte> build_packet(const Line& line, std::uint8_t opcode, wire::PathAddress path, Qpn dest,
                                    const ValueOf& value);

/// Every field of a packet.
Output describe(const wire::RxPacket& packet);

}  // namespace uroce::script
