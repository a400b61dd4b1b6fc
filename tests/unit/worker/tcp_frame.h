// A TCP segment as a frame, and what a test reads of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "wire/ethernet_frame.h"
#include "wire/network_headers.h"

namespace uroce::worker::testing {

struct TcpFrame {
  static constexpr std::size_t kEthernet = 14, kTcp = 20 + 12;  ///< with options
  static constexpr unsigned kAck = 0x10, kPsh = 0x08, kFin = 0x01, kCwr = 0x80;

  bool v4 = true;
  std::size_t payload = 0;  ///< bytes that count up from `from` on
  std::uint32_t sequence = 1000, from = 0;
  unsigned flags = kAck;
  std::uint8_t option = 0;

  std::size_t ip() const { return v4 ? 20 : 40; }
  std::size_t transport() const { return kEthernet + ip(); }
  std::size_t headers() const { return transport() + kTcp; }

  /// With its checksums.
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> frame(headers() + payload);
    wire::store16(&frame[12], v4 ? 0x0800 : 0x86dd);
    std::byte* const network = &frame[kEthernet];
    if (v4) {
      wire::store8(network, 0x45);
      wire::store16(network + 2, static_cast<unsigned>(ip() + kTcp + payload));
      wire::store16(network + 4, 0x1234);
      wire::store16(network + 6, 0x4000);
      wire::store8(network + 8, 64);
      wire::store8(network + 9, 6);
      wire::store32(network + 12, 0xc0000201);
      wire::store32(network + 16, 0xc0000202);
    } else {
      wire::store8(network, 0x60);
      wire::store16(network + 4, static_cast<unsigned>(kTcp + payload));
      wire::store8(network + 6, 6);
      wire::store8(network + 23, 1);
      wire::store8(network + 39, 2);
    }
    std::byte* const tcp = &frame[transport()];
    wire::store16(tcp, 7001);
    wire::store16(tcp + 2, 40000);
    wire::store32(tcp + 4, sequence);
    wire::store8(tcp + 12, (kTcp / 4) << 4);
    wire::store8(tcp + 13, flags);
    wire::store8(tcp + 20, option);
    for (std::size_t i = 0; i < payload; ++i) {
      const std::size_t at = from + i;
      tcp[kTcp + i] = static_cast<std::byte>(at * 7 + (at >> 8));
    }
    wire::fill_checksums(frame, wire::layout_of(frame));
    return frame;
  }
};

}  // namespace uroce::worker::testing
