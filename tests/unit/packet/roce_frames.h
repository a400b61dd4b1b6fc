// RoCE frames for the tests of a port that carries nothing else.
#pragma once

#include <array>
#include <cstring>
#include <span>

#include "base/frame.h"
#include "wire/frame_template.h"
#include "wire/icrc.h"
#include "wire/network_headers.h"

namespace uroce::packet_test {

constexpr wire::Address v4_address(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d) {
  wire::Address address;
  std::copy(wire::Address::kIpv4Prefix.begin(), wire::Address::kIpv4Prefix.end(), address.bytes.begin());
  address.bytes[12] = a, address.bytes[13] = b, address.bytes[14] = c, address.bytes[15] = d;
  return address;
}
constexpr wire::Address kLoopback6 = [] {
  wire::Address address;
  address.bytes[15] = 1;
  return address;
}();

/// Where the parts of a frame with a valid header are.
struct Parts {
  explicit Parts(const base::Frame& frame)
      : v4(wire::load16(frame.data + 12) == wire::kEtherTypeIpv4),
        ip(frame.data + 14),
        ip_bytes(v4 ? 20 : 40),
        bth(ip + ip_bytes + 8),
        covered(frame.length - 14 - ip_bytes - 8 - wire::kIcrcBytes) {}
  std::uint32_t icrc() const { return wire::load_raw<std::uint32_t>(bth + covered); }
  std::uint32_t right_icrc() const { return wire::icrc_of(ip, ip_bytes, covered); }

  bool v4;
  std::byte* ip;
  std::size_t ip_bytes;
  std::byte* bth;
  std::size_t covered;  ///< bytes from the BTH to the ICRC
};

/// A frame of `length` bytes along `path` whose payload is made from `number`, which is in the PSN's word.
inline void fill_roce(base::Frame& frame, const wire::PathAddress& path, std::uint32_t length, std::uint32_t number,
                      std::uint32_t qpn = 0x17) {
  const wire::FrameTemplate headers(path);
  std::memset(frame.data, 0xa5, length);
  headers.emit(frame.data, length - headers.header_bytes());
  frame.length = length;
  frame.flags = 0;
  const Parts parts(frame);
  wire::store32(parts.bth, 0x04000000 | 0xffff);
  wire::store32(parts.bth + 4, qpn);
  wire::store_raw(parts.bth + 8, number);
  for (std::size_t i = 12; i < parts.covered; ++i) parts.bth[i] = static_cast<std::byte>(number * 7 + i);
  wire::store_raw(parts.bth + parts.covered, parts.right_icrc());
}

inline std::uint32_t roce_number(const base::Frame& frame) {
  return wire::load_raw<std::uint32_t>(Parts(frame).bth + 8);
}

inline bool roce_intact(const base::Frame& frame, std::uint32_t length) {
  if (frame.length != length) return false;
  const Parts parts(frame);
  const std::uint32_t number = roce_number(frame);
  for (std::size_t i = 12; i < parts.covered; ++i) {
    if (parts.bth[i] != static_cast<std::byte>(number * 7 + i)) return false;
  }
  return parts.icrc() == parts.right_icrc();
}

}  // namespace uroce::packet_test
