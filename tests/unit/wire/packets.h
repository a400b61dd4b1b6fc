// Packets for the tests of lib/wire: golden ones from capture files, and ones built field by field.
#pragma once

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "wire/bth.h"
#include "wire/frame_template.h"
#include "wire/icrc.h"
#include "wire/network_headers.h"
#include "wire/packet.h"

namespace uroce::wire::testing {

using Bytes = std::vector<std::byte>;

struct GoldenFrame {
  std::string file;
  std::size_t number;
  Bytes frame;
};

/// Every frame of every classic pcap file in tests/golden/pcaps.
inline std::vector<GoldenFrame> golden_frames() {
  std::vector<GoldenFrame> found;
  for (const auto& entry : std::filesystem::directory_iterator(UROCE_GOLDEN_DIR)) {
    if (entry.path().extension() != ".pcap") continue;
    std::ifstream in(entry.path(), std::ios::binary);
    const std::vector<char> data((std::istreambuf_iterator<char>(in)), {});
    std::size_t number = 0;
    for (std::size_t at = 24; at + 16 <= data.size();) {
      std::uint32_t captured;
      std::memcpy(&captured, &data[at + 8], 4);
      at += 16;
      const auto* first = reinterpret_cast<const std::byte*>(data.data()) + at;
      found.push_back({entry.path().filename(), ++number, Bytes(first, first + captured)});
      at += captured;
    }
  }
  return found;
}

inline Address v4(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d) {
  return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d}};
}
inline Address v6(std::uint8_t last) { return {{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last}}; }

inline PathAddress path(bool is_v6 = false, std::optional<std::uint16_t> vlan = {}) {
  PathAddress path;
  path.source_mac = {2, 0, 0, 0, 0, 1};
  path.dest_mac = {2, 0, 0, 0, 0, 2};
  path.vlan = vlan;
  path.source = is_v6 ? v6(1) : v4(192, 0, 2, 1);
  path.dest = is_v6 ? v6(2) : v4(192, 0, 2, 2);
  path.traffic_class = 0x68;
  path.hop_limit = 63;
  path.flow_label = 0xabcde;
  path.source_port = 0xc123;
  return path;
}

/// Puts the right ICRC at the end of a frame that parses but for it.
inline void sign(Bytes& frame, std::size_t ip_at, std::size_t ip_bytes) {
  const std::size_t udp = ip_at + ip_bytes;
  const std::size_t ib_bytes = load16(&frame[udp + 4]) - 8u;
  store_raw(&frame[udp + 8 + ib_bytes - kIcrcBytes], icrc_of(&frame[ip_at], ip_bytes, ib_bytes - kIcrcBytes));
}

/// A packet of `bth.opcode`: extended headers filled with counting bytes, then the payload, pad and ICRC.
inline Bytes build(const PathAddress& path, Bth bth, std::size_t payload_bytes) {
  const OpcodeInfo& info = kOpcodes[bth.opcode];
  bth.pad = static_cast<std::uint8_t>((4 - payload_bytes % 4) % 4);
  const std::size_t ib_bytes = info.header_bytes + payload_bytes + bth.pad + kIcrcBytes;
  const FrameTemplate frame(path);
  Bytes out(frame.header_bytes() + ib_bytes, std::byte{0xa5});
  std::byte* at = out.data() + frame.emit(out.data(), ib_bytes);
  bth.emit(at);
  for (std::size_t i = kBthBytes; i < info.header_bytes + payload_bytes; ++i) at[i] = static_cast<std::byte>(i);
  if (bth.opcode == kCnpOpcode) std::memset(at + kBthBytes, 0, kCnpReservedBytes);
  std::memset(at + info.header_bytes + payload_bytes, 0, bth.pad);
  sign(out, frame.ip_offset(), frame.ip_bytes());
  return out;
}

inline Bytes build(const PathAddress& path, std::uint8_t code, std::size_t payload_bytes) {
  Bth bth;
  bth.opcode = code;
  bth.dest_qpn = Qpn{0x123456};
  bth.psn = Psn(0xabcdef);
  return build(path, bth, payload_bytes);
}

inline constexpr std::uint8_t kSendOnlyRc = opcode(Service::kRc, Operation::kSendOnly);

}  // namespace uroce::wire::testing
