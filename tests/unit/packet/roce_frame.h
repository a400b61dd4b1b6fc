// RoCE frames over IPv4 for tests of what looks into them. Their checksums and ICRC are zero.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "wire/bth.h"
#include "wire/bytes.h"
#include "wire/extended_headers.h"
#include "wire/network_headers.h"
#include "wire/opcode.h"

namespace uroce::packet_test {

struct RoceFrame {
  std::uint32_t psn = 0, dest_qpn = 0x12;
  std::uint8_t opcode = 0x04;  ///< RC SEND_ONLY
  std::array<std::uint8_t, 4> to{192, 0, 2, 1};
  std::uint64_t address = 0;  ///< of a READ request
  std::uint32_t length = 0;   ///< of a READ request
  std::size_t payload = 16;
  std::uint16_t attribute = 0;  ///< of a MAD of connection management, in a datagram of `payload` bytes; 0: none
  std::uint8_t syndrome = 0;    ///< of an acknowledge
};

/// From 192.0.2.1, to the MAC 02:00:00:00:00:01.
inline std::vector<std::byte> roce(const RoceFrame& frame) {
  constexpr std::size_t kIp = 14, kUdp = kIp + 20, kBth = kUdp + 8, kExtended = kBth + wire::kBthBytes;
  const std::size_t extended = wire::kOpcodes[frame.opcode].header_bytes - wire::kBthBytes;
  std::vector<std::byte> bytes(kExtended + extended + frame.payload + 4);
  wire::EthernetHeader{{0x02, 0, 0, 0, 0, 1}, {0x02, 0, 0, 0, 0, 1}, wire::kEtherTypeIpv4}.emit(bytes.data());
  wire::Ipv4Header ip;
  ip.total_length = static_cast<std::uint16_t>(bytes.size() - kIp);
  ip.source = {192, 0, 2, 1};
  ip.dest = frame.to;
  ip.emit(bytes.data() + kIp);
  wire::UdpHeader udp;
  udp.dest_port = wire::kRoceUdpPort;
  udp.length = static_cast<std::uint16_t>(bytes.size() - kUdp);
  udp.emit(bytes.data() + kUdp);
  wire::Bth bth;
  bth.opcode = frame.opcode;
  bth.dest_qpn = Qpn{frame.dest_qpn};
  bth.psn = Psn(frame.psn);
  bth.emit(bytes.data() + kBth);
  if (const std::size_t reth = wire::kOpcodes[frame.opcode].reth; reth != 0) {
    wire::Reth{frame.address, Key{7}, frame.length}.emit(bytes.data() + kBth + reth);
  }
  std::byte* const payload = bytes.data() + kExtended + extended;
  if (frame.attribute != 0) {
    payload[1] = std::byte{0x07};
    wire::store16(payload + 16, frame.attribute);
  }
  if (const std::size_t aeth = wire::kOpcodes[frame.opcode].aeth; aeth != 0) {
    wire::Aeth{frame.syndrome, Msn(3)}.emit(bytes.data() + kBth + aeth);
  }
  return bytes;
}

}  // namespace uroce::packet_test
