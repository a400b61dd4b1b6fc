// The headers of rsocket datagrams: one for data between QPs, one for data and control over UDP.
#pragma once

#include <endian.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "rsocket/datagram.h"

namespace uroce::rdmacm {

/// Set in the wr_id of receives.
inline constexpr std::uint64_t kReceiveBit = 1ull << 63;

inline constexpr std::uint8_t kUdpData = 0, kUdpControl = 7;
inline constexpr std::uint32_t kUdpTag = 0x55555555;
inline constexpr std::size_t kMostUdpHeader = 28;

inline std::size_t header_length(const SocketAddress& a) { return a.family == AF_INET6 ? 24 : 8; }

/// Writes version, length, port and address of the sender. Returns the header's length.
inline std::size_t encode_header(const SocketAddress& from, std::byte* out) {
  const std::size_t length = header_length(from);
  std::memset(out, 0, length);
  out[0] = std::byte{static_cast<std::uint8_t>(from.family == AF_INET6 ? 6 : 4)};
  out[1] = std::byte{static_cast<std::uint8_t>(length)};
  std::memcpy(out + 2, &from.port, 2);
  if (from.family == AF_INET6) {
    std::memcpy(out + 8, from.ip.data(), 16);  // the flow label in bytes 4 to 7 is 0
  } else {
    std::memcpy(out + 4, from.ip.data(), 4);
  }
  return length;
}

/// Returns the header's length; 0 if it is malformed.
inline std::size_t decode_header(const std::byte* in, std::size_t size, SocketAddress& from) {
  if (size < 8) return 0;
  const auto version = static_cast<std::uint8_t>(in[0]);
  const auto length = static_cast<std::uint8_t>(in[1]);
  if (size < length || !((version == 4 && length == 8) || (version == 6 && length == 24))) return 0;
  from = {};
  from.family = version == 6 ? AF_INET6 : AF_INET;
  std::memcpy(&from.port, in + 2, 2);
  if (version == 6) {
    std::memcpy(from.ip.data(), in + 8, 16);
  } else {
    std::memcpy(from.ip.data(), in + 4, 4);
  }
  return length;
}

/// Writes tag, version, operation, length, and QPN and address of the sender. Returns the header's length.
inline std::size_t encode_udp_header(const SocketAddress& from, std::uint8_t op, std::uint32_t qpn,
                                     std::byte (&out)[kMostUdpHeader]) {
  const bool six = from.family == AF_INET6;
  const std::size_t length = six ? 28 : 16;
  const std::uint32_t tag = htobe32(kUdpTag), number = htobe32(qpn & 0xffffff);
  std::memset(out, 0, sizeof(out));
  std::memcpy(out, &tag, 4);
  out[4] = std::byte{static_cast<std::uint8_t>(six ? 6 : 4)};
  out[5] = std::byte{op};
  out[6] = std::byte{static_cast<std::uint8_t>(length)};
  std::memcpy(out + 8, &number, 4);
  std::memcpy(out + 12, from.ip.data(), six ? 16 : 4);
  return length;
}

/// Returns the header's length; 0 if it is malformed or not of address family `family`.
inline std::size_t decode_udp_header(const std::byte* in, std::size_t size, sa_family_t family, std::uint8_t& op,
                                     std::uint32_t& qpn) {
  const std::size_t length = family == AF_INET6 ? 28 : 16;
  std::uint32_t tag = 0;
  if (size < length) return 0;
  std::memcpy(&tag, in, 4);
  const auto version = static_cast<std::uint8_t>(in[4]);
  if (be32toh(tag) != kUdpTag || version != (family == AF_INET6 ? 6 : 4)) return 0;
  if (static_cast<std::uint8_t>(in[6]) != length) return 0;
  op = static_cast<std::uint8_t>(in[5]);
  std::memcpy(&qpn, in + 8, 4);
  qpn = be32toh(qpn) & 0xffffff;
  return length;
}

}  // namespace uroce::rdmacm
