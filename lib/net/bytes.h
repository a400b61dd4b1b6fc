// Big-endian fields, the Internet checksum and the constants of the protocols beside RoCE.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "wire/packet.h"

namespace uroce::net {

inline constexpr std::size_t kEthernetBytes = 14;
inline constexpr std::size_t kVlanTagBytes = 4;
inline constexpr std::size_t kMinFrameBytes = 60;  ///< without FCS; shorter ones are padded
inline constexpr std::uint16_t kEtherIpv4 = 0x0800, kEtherArp = 0x0806, kEtherVlan = 0x8100, kEtherIpv6 = 0x86dd;
inline constexpr std::uint8_t kProtoIcmp = 1, kProtoIcmpV6 = 58;
inline constexpr wire::Mac kBroadcastMac{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

inline std::uint8_t get8(const std::byte* from) { return static_cast<std::uint8_t>(*from); }
inline std::uint16_t get16(const std::byte* from) {
  return static_cast<std::uint16_t>(get8(from) << 8 | get8(from + 1));
}
inline std::uint32_t get32(const std::byte* from) {
  return static_cast<std::uint32_t>(get16(from)) << 16 | get16(from + 2);
}
inline void put8(std::byte* to, unsigned value) { *to = static_cast<std::byte>(value); }
inline void put16(std::byte* to, unsigned value) {
  put8(to, value >> 8 & 0xff);
  put8(to + 1, value & 0xff);
}

inline wire::Mac get_mac(const std::byte* from) {
  wire::Mac mac;
  std::memcpy(mac.data(), from, mac.size());
  return mac;
}
inline void put_mac(std::byte* to, const wire::Mac& mac) { std::memcpy(to, mac.data(), mac.size()); }

inline wire::Address v4_address(const std::byte* from) {
  wire::Address address;
  address.bytes[10] = address.bytes[11] = 0xff;
  std::memcpy(address.bytes.data() + 12, from, 4);
  return address;
}
inline wire::Address v6_address(const std::byte* from) {
  wire::Address address;
  std::memcpy(address.bytes.data(), from, 16);
  return address;
}
inline void put_v4(std::byte* to, const wire::Address& address) { std::memcpy(to, address.bytes.data() + 12, 4); }
inline void put_v6(std::byte* to, const wire::Address& address) { std::memcpy(to, address.bytes.data(), 16); }

/// The one's complement sum of RFC 1071, to be continued over further pieces of even length.
inline std::uint32_t sum16(const std::byte* from, std::size_t bytes, std::uint32_t sum = 0) {
  std::uint64_t total = sum;
  for (; bytes >= 2; from += 2, bytes -= 2) total += get16(from);
  if (bytes != 0) total += static_cast<std::uint32_t>(get8(from) << 8);
  while (total >> 16 != 0) total = (total & 0xffff) + (total >> 16);
  return static_cast<std::uint32_t>(total);
}
inline std::uint16_t fold_checksum(std::uint32_t sum) { return static_cast<std::uint16_t>(~sum & 0xffff); }

inline bool is_unicast(const wire::Mac& mac) { return (mac[0] & 1) == 0 && mac != wire::Mac{}; }

}  // namespace uroce::net
