// The requests of rtnetlink(7) that an interface of ours needs.
#pragma once

#include <cstdint>

#include "net/link_stack.h"

namespace uroce::tap {

/// A descriptor of rtnetlink in the calling thread's network namespace; -1: an errno says why.
int open_netlink();

// Each returns an errno; 0: it is done.
/// Without duplicate address detection, which the link stack does.
int add_address(int netlink, std::uint32_t interface, const net::InterfaceAddress& address);
int remove_address(int netlink, std::uint32_t interface, const net::InterfaceAddress& address);
int set_mac(int netlink, std::uint32_t interface, const wire::Mac& mac);
/// The kernel makes no link-local address of its own, also where the MTU was too small for IPv6 before.
int set_mtu(int netlink, std::uint32_t interface, std::uint32_t bytes);
int set_up(int netlink, std::uint32_t interface);

}  // namespace uroce::tap
