// The kernel's interface of a port (net::Netdev) as the control thread keeps it in step: it has the port's untagged
// addresses, its MTU, and a carrier while the port is up. RDMA does not depend on it: the link stack answers for
// the addresses whatever the kernel has.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "net/netdev.h"

namespace uroce::control {

class NetdevControl {
 public:
  /// nullptr: there is no interface, and all calls do nothing.
  explicit NetdevControl(net::Netdev* netdev) : netdev_(netdev) {}

  /// Adds those that are new and removes those that are not in `ours`. What the kernel refuses is in the log.
  void assign(std::span<const net::InterfaceAddress> ours);
  void set_mtu(std::uint32_t bytes);
  void set_carrier(bool up);

 private:
  void report(int error, const std::string& what);
  void give(const net::InterfaceAddress& own);
  void give_again();

  net::Netdev* netdev_;                       ///< nullptr: also once it was deleted
  std::vector<net::InterfaceAddress> given_;  ///< also those that the kernel refused
  bool no_ipv6_ = false;                      ///< and this is in the log
};

}  // namespace uroce::control
