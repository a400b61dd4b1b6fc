// The kernel's part in a port that it has as an interface, too (af_packet, af_xdp, pcap): which of our addresses
// are also its own. Every packet for those comes to both. The kernel answers ARP, neighbour discovery and echo
// requests, so the link stack leaves them to it; and it would answer RoCE with "port unreachable", were there no
// socket on that port: one is held here for each such address, whose filter drops all.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "net/link_stack.h"
#include "platform/unique_fd.h"

namespace uroce::daemon {

class KernelAddresses {
 public:
  /// The interface's index, 0: the kernel has none.
  explicit KernelAddresses(std::uint32_t interface) : interface_(interface) {}

  /// Looks which of `ours` the kernel has now. True: others than before.
  bool refresh(std::span<const net::InterfaceAddress> ours);
  std::vector<wire::Address> shared() const;

 private:
  UniqueFd bound_socket(const wire::Address& address, std::uint16_t port) const;

  std::uint32_t interface_;
  std::map<wire::Address, UniqueFd> sockets_;  ///< invalid: somebody else holds the port, and so keeps it quiet
};

}  // namespace uroce::daemon
