// The port's addresses that the kernel also has on the same interface (af_packet, af_xdp, pcap). Both receive every
// packet for such an address. The kernel answers ARP, neighbour discovery and echo requests, so the link stack does
// not. It would answer RoCE with "port unreachable" unless a socket is bound to that UDP port: this class holds
// such a socket for each address, with a filter that drops everything.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "net/link_stack.h"
#include "platform/unique_fd.h"

namespace uroce::control {

class KernelAddresses {
 public:
  /// The interface's index, 0: the kernel has none.
  explicit KernelAddresses(std::uint32_t interface) : interface_(interface) {}

  /// Checks which of `ours` the kernel has now. True: the set has changed.
  bool refresh(std::span<const net::InterfaceAddress> ours);
  std::vector<wire::Address> shared() const;

 private:
  bool kernel_has(const wire::Address& address) const;
  UniqueFd bound_socket(const wire::Address& address, std::uint16_t port) const;

  std::uint32_t interface_;
  std::map<wire::Address, UniqueFd> sockets_;  ///< invalid: another program has bound the port
};

}  // namespace uroce::control
