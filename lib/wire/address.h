// Network and Ethernet addresses.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace uroce::wire {

/// A GID or an IPv6 address; an IPv4 address is mapped: ::ffff:a.b.c.d (RFC 4291, 2.5.5.2).
struct Address {
  static constexpr std::array<std::uint8_t, 12> kIpv4Prefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

  std::array<std::uint8_t, 16> bytes{};
  bool is_v4() const { return std::equal(kIpv4Prefix.begin(), kIpv4Prefix.end(), bytes.begin()); }
  bool is_link_local() const { return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80; }  ///< fe80::/10
  bool is_multicast() const { return is_v4() ? bytes[12] >> 4 == 0xe : bytes[0] == 0xff; }
  bool operator==(const Address&) const = default;
  auto operator<=>(const Address&) const = default;
};

/// The addresses in IP headers: 4 and 16 bytes.
inline Address load_ipv4(const std::byte* from) {
  Address address;
  std::copy(Address::kIpv4Prefix.begin(), Address::kIpv4Prefix.end(), address.bytes.begin());
  std::memcpy(&address.bytes[12], from, 4);
  return address;
}
inline Address load_ipv6(const std::byte* from) {
  Address address;
  std::memcpy(address.bytes.data(), from, 16);
  return address;
}
/// `address` is an IPv4 address.
inline void store_ipv4(std::byte* to, const Address& address) { std::memcpy(to, &address.bytes[12], 4); }
inline void store_ipv6(std::byte* to, const Address& address) { std::memcpy(to, address.bytes.data(), 16); }

using Mac = std::array<std::uint8_t, 6>;

inline constexpr Mac kBroadcastMac{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
/// Neither a group (IEEE 802, the I/G bit) nor zero.
inline bool is_unicast(const Mac& mac) { return (mac[0] & 1) == 0 && mac != Mac{}; }

inline Mac load_mac(const std::byte* from) {
  Mac mac;
  std::memcpy(mac.data(), from, mac.size());
  return mac;
}
inline void store_mac(std::byte* to, const Mac& mac) { std::memcpy(to, mac.data(), mac.size()); }

}  // namespace uroce::wire
