// The carrier of a kernel interface, for ports whose DPDK driver does not report it (af_packet, af_xdp, tap).
#pragma once

#include <cstdint>

#include "net/device.h"

namespace uroce::dpdk {

/// Thread-safe. The interface is known by its index: a new one of the same name is another interface.
class KernelLink {
 public:
  /// `index` of the interface, in the caller's network namespace.
  explicit KernelLink(std::uint32_t index);
  ~KernelLink();
  KernelLink(const KernelLink&) = delete;
  KernelLink& operator=(const KernelLink&) = delete;

  /// The state at this moment: two system calls.
  net::LinkState read() const;

 private:
  std::uint32_t index_;
  int socket_;
};

}  // namespace uroce::dpdk
