// An interface of the kernel that is attached to a port: the kernel sends and receives its own frames (TCP, ping,
// ARP) through the port, with the port's addresses, and RoCE stays with the daemon.
#pragma once

#include <cstdint>
#include <string>

#include "net/link_stack.h"
#include "wire/address.h"

namespace uroce::net {

/// The control thread makes the calls; the descriptor is for one other thread.
class Netdev {
 public:
  virtual ~Netdev() = default;

  /// Its present one; once it was deleted, its first one.
  virtual std::string name() const = 0;
  /// Index in the network namespace of the interface, which may be another one than that of this process.
  virtual std::uint32_t index() const = 0;
  /// A read takes one frame that the kernel sends, a write gives it one that it receives, each after a
  /// virtio_net_hdr: the kernel leaves checksums and TCP segmentation to the reader. Never blocks. The owner keeps
  /// it open.
  virtual int fd() const = 0;

  // Each returns an errno; 0: it is done.
  virtual int add_address(const InterfaceAddress& address) = 0;
  virtual int remove_address(const InterfaceAddress& address) = 0;
  virtual int set_mtu(std::uint32_t bytes) = 0;
  /// Whether the kernel shows a carrier.
  virtual int set_carrier(bool up) = 0;
};

}  // namespace uroce::net
