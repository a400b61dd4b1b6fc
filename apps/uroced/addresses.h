// The text form of IP and MAC addresses.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "net/link_stack.h"
#include "wire/address.h"

namespace uroce::uroced {

std::optional<wire::Address> parse_address(std::string_view text);
/// "192.0.2.1/24", "192.0.2.1/24@vlan5". The default prefix length is 24 or 64.
std::optional<net::InterfaceAddress> parse_interface_address(std::string_view text);
std::optional<wire::Mac> parse_mac(std::string_view text);

std::string to_string(const wire::Address& address);
std::string to_string(const wire::Mac& mac);
/// As parse_interface_address() takes it.
std::string to_string(const net::InterfaceAddress& own);

/// A locally administered address, derived from name and address.
wire::Mac derive_mac(std::string_view name, const wire::Address& address);
/// fe80::/64 with the modified EUI-64 of the MAC address (RFC 4291, appendix A).
net::InterfaceAddress link_local(const wire::Mac& mac);

}  // namespace uroce::uroced
