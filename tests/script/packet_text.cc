#include "tests/script/packet_text.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "wire/dump.h"
#include "wire/extended_headers.h"
#include "wire/frame_template.h"
#include "wire/icrc.h"

namespace uroce::script {
namespace {

using wire::OpcodeInfo;

constexpr Name kSyndromeNames[] = {{"ack", wire::kAckUnlimited},
                                   {"sequence", 0x60},
                                   {"invalid_request", 0x61},
                                   {"remote_access", 0x62},
                                   {"remote_operational", 0x63}};

/// A field of a header: `bytes` of it, big-endian; of a single byte perhaps only the bits of `mask`.
struct HeaderField {
  std::string_view name;
  std::uint32_t header;  ///< OpcodeFlag; 0: the BTH
  std::size_t offset, bytes;
  std::uint8_t mask = 0;
};
constexpr HeaderField kHeaderFields[] = {
    {"solicited", 0, 1, 1, 0x80},
    {"pkey", 0, 2, 2},
    {"fecn", 0, 4, 1, 0x80},
    {"becn", 0, 4, 1, 0x40},
    {"qpn", 0, 5, 3},
    {"ack_req", 0, 8, 1, 0x80},
    {"psn", 0, 9, 3},
    {"qkey", wire::kHasDeth, 0, 4},
    {"src_qp", wire::kHasDeth, 5, 3},
    {"srqn", wire::kHasXrcEth, 1, 3},
    {"flush", wire::kHasFeth, 0, 4},
    {"va", wire::kHasReth, 0, 8},
    {"rkey", wire::kHasReth, 8, 4},
    {"dma_len", wire::kHasReth, 12, 4},
    {"va", wire::kHasAtomicEth, 0, 8},
    {"rkey", wire::kHasAtomicEth, 8, 4},
    {"swap_add", wire::kHasAtomicEth, 12, 8},
    {"cmp", wire::kHasAtomicEth, 20, 8},
    {"syndrome", wire::kHasAeth, 0, 1},
    {"msn", wire::kHasAeth, 1, 3},
    {"original", wire::kHasAtomicAckEth, 0, 8},
    {"imm", wire::kHasImmDt, 0, 4},
    {"inv_rkey", wire::kHasIeth, 0, 4},
};

/// Where the header stands, from the BTH on.
std::size_t place_of(const OpcodeInfo& info, std::uint32_t header) {
  switch (header) {
    case wire::kHasDeth: return info.deth;
    case wire::kHasXrcEth: return info.xrceth;
    case wire::kHasFeth: return info.feth;
    case wire::kHasReth: return info.reth;
    case wire::kHasAtomicEth: return info.atomic_eth;
    case wire::kHasAeth: return info.aeth;
    case wire::kHasAtomicAckEth: return info.atomic_ack_eth;
    case wire::kHasImmDt: return info.immdt;
    case wire::kHasIeth: return info.ieth;
    default: return 0;
  }
}

std::uint64_t load(const std::byte* bth, const OpcodeInfo& info, const HeaderField& field) {
  const std::byte* const at = bth + place_of(info, field.header) + field.offset;
  if (field.mask != 0) return (at[0] & std::byte{field.mask}) != std::byte{0};
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < field.bytes; ++i) value = value << 8 | static_cast<std::uint64_t>(at[i]);
  return value;
}

void store(std::byte* bth, const OpcodeInfo& info, const HeaderField& field, std::uint64_t value) {
  std::byte* const at = bth + place_of(info, field.header) + field.offset;
  if (field.mask != 0) {
    at[0] = value != 0 ? at[0] | std::byte{field.mask} : at[0] & ~std::byte{field.mask};
    return;
  }
  for (std::size_t i = field.bytes; i-- > 0; value >>= 8) at[i] = static_cast<std::byte>(value);
  if (value != 0)
    throw SyntaxError(std::string(field.name) + ": more than its " + std::to_string(field.bytes * 8) + " bits");
}

const HeaderField* find_field(const OpcodeInfo& info, std::string_view name) {
  for (const HeaderField& field : kHeaderFields) {
    if (field.name == name && (field.header == 0 || info.has(field.header))) return &field;
  }
  return nullptr;
}

std::string_view without_service(std::string_view name) {
  const std::size_t blank = name.find(' ');
  return blank == name.npos ? name : name.substr(blank + 1);
}

std::uint64_t v4_of(const wire::Address& address) {
  return std::uint64_t{address.bytes[12]} << 24 | std::uint64_t{address.bytes[13]} << 16 |
         std::uint64_t{address.bytes[14]} << 8 | std::uint64_t{address.bytes[15]};
}
void set_v4(wire::Address& address, std::uint64_t v4) {
  for (std::size_t i = 16; i-- > 12; v4 >>= 8) address.bytes[i] = static_cast<std::uint8_t>(v4);
}

/// The part of a packet below the BTH, and its payload.
struct Body {
  std::size_t bytes = 0;
  std::byte fill{};
  bool bad_icrc = false;
};

Body body_of(const Line& line, const ValueOf& value, wire::PathAddress& path) {
  Body body;
  for (const Field& field : line.fields) {
    if (field.name == "len") body.bytes = value(field);
    if (field.name == "fill") body.fill = static_cast<std::byte>(value(field));
    if (field.name == "from") set_v4(path.source, value(field));
    if (field.name == "to") set_v4(path.dest, value(field));
    if (field.name == "ecn") path.ecn = static_cast<std::uint8_t>(value(field) & 3);
    if (field.name == "ce" && value(field) != 0) path.ecn = wire::kCongestionExperienced;
    if (field.name == "icrc") body.bad_icrc = value(field) == 0;
  }
  if (body.bytes > 4096) throw SyntaxError("len: a packet carries at most 4096 bytes");
  return body;
}

}  // namespace

const Names kSyndromes = kSyndromeNames;

std::uint8_t opcode_of(const std::string& name, wire::Service service) {
  if (name == "CNP") return wire::kCnpOpcode;
  std::string known = "CNP";
  for (std::size_t code = 0; code < 256; ++code) {
    const OpcodeInfo& info = wire::kOpcodes[code];
    if (!info.known() || info.service != service || code == wire::kCnpOpcode) continue;
    const std::string_view title = without_service(info.name);
    if (title == name || (title == "ACK" && name == "NAK")) return static_cast<std::uint8_t>(code);
    known.append(", ").append(title).append(title == "ACK" ? ", NAK" : "");
  }
  throw SyntaxError("'" + name + "' is not an opcode of this service; allowed: " + known);
}

std::string opcode_name(std::uint8_t opcode) { return std::string(without_service(wire::kOpcodes[opcode].name)); }

std::vector<std::string> packet_fields(std::uint8_t opcode) {
  const OpcodeInfo& info = wire::kOpcodes[opcode];
  std::vector<std::string> names;
  for (const HeaderField& field : kHeaderFields) {
    if (find_field(info, field.name) == &field) names.emplace_back(field.name);
  }
  if (info.has(wire::kHasPayload)) names.insert(names.end(), {"len", "fill"});
  names.insert(names.end(), {"from", "to", "ce", "ecn"});
  return names;
}

std::vector<std::byte> build_packet(const Line& line, std::uint8_t opcode, wire::PathAddress path, Qpn dest,
                                    const ValueOf& value) {
  const OpcodeInfo& info = wire::kOpcodes[opcode];
  const Body body = body_of(line, value, path);
  wire::Bth bth;
  bth.opcode = opcode;
  bth.pad = static_cast<std::uint8_t>((4 - body.bytes % 4) % 4);
  bth.dest_qpn = dest;
  bth.becn = opcode == wire::kCnpOpcode;
  const std::size_t ib_bytes = info.header_bytes + body.bytes + bth.pad + wire::kIcrcBytes;
  const wire::FrameTemplate headers(path);
  std::vector<std::byte> frame(headers.header_bytes() + ib_bytes);
  std::byte* const at = frame.data() + headers.emit(frame.data(), ib_bytes);
  bth.emit(at);
  if (info.has(wire::kHasAeth)) store(at, info, *find_field(info, "syndrome"), wire::kAckUnlimited);
  if (info.has(wire::kHasReth)) store(at, info, *find_field(info, "dma_len"), body.bytes);
  for (const Field& field : line.fields) {
    if (const HeaderField* const known = find_field(info, field.name)) store(at, info, *known, value(field));
  }
  std::fill_n(at + info.header_bytes, body.bytes, body.fill);
  const std::size_t before_icrc = ib_bytes - wire::kIcrcBytes;
  std::uint32_t icrc = wire::icrc_of(frame.data() + headers.ip_offset(), headers.ip_bytes(), before_icrc);
  if (body.bad_icrc) icrc = ~icrc;
  std::memcpy(at + before_icrc, &icrc, sizeof icrc);
  return frame;
}

Output describe(const wire::RxPacket& packet) {
  const OpcodeInfo& info = *packet.info;
  Output out;
  out.name = opcode_name(packet.bth.opcode);
  for (const HeaderField& field : kHeaderFields) {
    if (find_field(info, field.name) == &field) {
      out.values.emplace_back(field.name, load(packet.bth_start, info, field));
    }
  }
  const auto syndrome = out.find("syndrome");
  if (out.name == "ACK" && syndrome != nullptr && (*syndrome & 0x60) != 0) out.name = "NAK";
  if (info.has(wire::kHasPayload)) {
    out.values.emplace_back("len", packet.payload_bytes);
    const auto* const first = packet.payload;
    const bool uniform = std::all_of(first, first + packet.payload_bytes, [&](std::byte b) { return b == *first; });
    if (packet.payload_bytes != 0 && uniform) out.values.emplace_back("fill", static_cast<std::uint64_t>(*first));
  }
  out.values.emplace_back("from", v4_of(packet.source()));
  out.values.emplace_back("to", v4_of(packet.destination()));
  out.values.emplace_back("ce", packet.ce);
  const auto* const ip = reinterpret_cast<const std::uint8_t*>(packet.ip);
  out.values.emplace_back("ecn", packet.ip_bytes == 20 ? ip[1] & 3 : ip[1] >> 4 & 3);
  std::array<char, wire::kDumpBytes> text;
  out.text = wire::dump(packet, text);
  return out;
}

}  // namespace uroce::script
