// The kernel's sockets behind the queues of a port. DPDK's af_packet and af_xdp have no receive interrupts and hand
// out no descriptor, but the kernel makes their sockets readable when a frame arrives (packet(7), xsk_poll()). Each
// queue has one, which is found by when it was opened.
#pragma once

#include <span>
#include <vector>

namespace uroce::dpdk {

class QueueSockets {
 public:
  /// Before the driver makes the port. `family`: AF_PACKET, AF_XDP, or AF_UNSPEC for a driver without sockets.
  explicit QueueSockets(int family);

  /// Adds the sockets that were opened since the last look; opened together, they are in the order of their
  /// numbers.
  void look();
  /// By queue, in the order of the looks. They belong to the driver.
  std::span<const int> found() const { return found_; }

  /// Closes the sockets that a driver has left open after it closed the port, as that of af_xdp does if the kernel
  /// refuses a queue.
  void close_left();

 private:
  int family_;
  std::vector<int> before_, known_, found_;
};

}  // namespace uroce::dpdk
