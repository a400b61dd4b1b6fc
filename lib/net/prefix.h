// What the prefix length of an interface's address says of other addresses.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "net/link_stack.h"
#include "wire/address.h"
#include "wire/bytes.h"

namespace uroce::net {

/// Whether `address` is of the same family and has the prefix of `own`.
inline bool in_prefix(const InterfaceAddress& own, const wire::Address& address) {
  if (address.is_v4() != own.address.is_v4()) return false;
  unsigned bits =
      address.is_v4() ? 96u + std::min<unsigned>(own.prefix_bits, 32) : std::min<unsigned>(own.prefix_bits, 128);
  for (std::size_t i = 0; bits != 0; ++i) {
    const unsigned take = std::min(bits, 8u);
    const unsigned mask = 0xff00u >> take & 0xff;
    if (((address.bytes[i] ^ own.address.bytes[i]) & mask) != 0) return false;
    bits -= take;
  }
  return true;
}

namespace detail {
/// Whether `address` has the prefix, and these host bits. With a prefix of 31 or 32 bits all addresses are of hosts
/// (RFC 3021).
inline bool has_host(const InterfaceAddress& own, const wire::Address& address, std::uint32_t host_bits) {
  if (!address.is_v4() || own.prefix_bits >= 31 || !in_prefix(own, address)) return false;
  const std::uint32_t host = 0xffffffffu >> own.prefix_bits;
  const auto* const last = reinterpret_cast<const std::byte*>(address.bytes.data() + 12);
  return (wire::load32(last) & host) == (host_bits & host);
}
}  // namespace detail

/// All host bits are 1: the broadcast address of the prefix. Never of IPv6.
inline bool is_broadcast_of(const InterfaceAddress& own, const wire::Address& address) {
  return detail::has_host(own, address, 0xffffffff);
}
/// All host bits are 0: the network's own address. Never of IPv6, where it is the anycast address of the routers.
inline bool is_network_of(const InterfaceAddress& own, const wire::Address& address) {
  return detail::has_host(own, address, 0);
}

}  // namespace uroce::net
