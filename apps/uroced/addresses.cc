#include "apps/uroced/addresses.h"

#include <arpa/inet.h>

#include <charconv>
#include <cstdio>
#include <cstring>

namespace uroce::uroced {

std::optional<wire::Address> parse_address(std::string_view text) {
  const std::string copy(text);
  wire::Address address;
  if (::inet_pton(AF_INET, copy.c_str(), address.bytes.data() + 12) == 1) {
    address.bytes[10] = address.bytes[11] = 0xff;
    return address;
  }
  if (::inet_pton(AF_INET6, copy.c_str(), address.bytes.data()) == 1) return address;
  return std::nullopt;
}

std::optional<net::InterfaceAddress> parse_interface_address(std::string_view text) {
  unsigned vlan = 0;
  if (const std::size_t at = text.find('@'); at != std::string_view::npos) {
    constexpr std::string_view kVlan = "vlan";
    const std::string_view tag = text.substr(at + 1);
    if (tag.substr(0, kVlan.size()) != kVlan) return std::nullopt;
    const auto [end, error] = std::from_chars(tag.data() + kVlan.size(), tag.data() + tag.size(), vlan);
    if (error != std::errc{} || end != tag.data() + tag.size() || vlan < 1 || vlan > 4094) return std::nullopt;
    text = text.substr(0, at);
  }
  const std::size_t slash = text.find('/');
  const auto address = parse_address(text.substr(0, slash));
  if (!address || address->is_multicast() || *address == wire::Address{}) return std::nullopt;
  const unsigned most = address->is_v4() ? 32 : 128;
  unsigned bits = address->is_v4() ? 24 : 64;
  if (slash != std::string_view::npos) {
    const std::string_view length = text.substr(slash + 1);
    const auto [end, error] = std::from_chars(length.data(), length.data() + length.size(), bits);
    if (error != std::errc{} || end != length.data() + length.size() || bits > most) return std::nullopt;
  }
  return net::InterfaceAddress{*address, static_cast<std::uint8_t>(bits), static_cast<std::uint16_t>(vlan)};
}

std::optional<wire::Mac> parse_mac(std::string_view text) {
  wire::Mac mac{};
  if (text.size() != 17) return std::nullopt;
  for (std::size_t i = 0; i < 6; ++i) {
    const char* begin = text.data() + 3 * i;
    const auto [end, error] = std::from_chars(begin, begin + 2, mac[i], 16);
    if (error != std::errc{} || end != begin + 2 || (i != 5 && *end != ':')) return std::nullopt;
  }
  if ((mac[0] & 1) != 0 || mac == wire::Mac{}) return std::nullopt;
  return mac;
}

std::string to_string(const wire::Address& address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address.is_v4()) {
    ::inet_ntop(AF_INET, address.bytes.data() + 12, text, sizeof(text));
  } else {
    ::inet_ntop(AF_INET6, address.bytes.data(), text, sizeof(text));
  }
  return text;
}

std::string to_string(const wire::Mac& mac) {
  char text[18];
  std::snprintf(text, sizeof(text), "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4],
                mac[5]);
  return text;
}

std::string to_string(const net::InterfaceAddress& own) {
  return to_string(own.address) + "/" + std::to_string(own.prefix_bits) +
         (own.vlan != 0 ? "@vlan" + std::to_string(own.vlan) : "");
}

wire::Mac derive_mac(std::string_view name, const wire::Address& address) {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  const auto add = [&hash](std::uint8_t byte) { hash = (hash ^ byte) * 0x100000001b3u; };
  for (const char c : name) add(static_cast<std::uint8_t>(c));
  for (const std::uint8_t byte : address.bytes) add(byte);
  wire::Mac mac{0x02};
  for (std::size_t i = 1; i < mac.size(); ++i) mac[i] = static_cast<std::uint8_t>(hash >> (8 * i));
  return mac;
}

net::InterfaceAddress link_local(const wire::Mac& mac) {
  net::InterfaceAddress own{.address = {}, .prefix_bits = 64};
  own.address.bytes = {0xfe,   0x80,   0,    0,    0,      0,      0,     0, static_cast<std::uint8_t>(mac[0] ^ 2),
                       mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
  return own;
}

}  // namespace uroce::uroced
