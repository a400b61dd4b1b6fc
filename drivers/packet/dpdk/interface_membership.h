// Makes a kernel interface receive more frames than those for its own addresses.
#pragma once

#include <cstdint>

namespace uroce::dpdk {

/// A packet_mreq, packet(7). The kernel counts memberships: this one ends with the object or the process and does
/// not disturb those of others. DPDK's drivers for kernel interfaces set and clear the interface's flags instead,
/// even those that another program has set, leave them set when the process is killed, and some ignore groups. No
/// effect if the kernel refuses.
class InterfaceMembership {
 public:
  enum class Kind : std::uint16_t { kPromiscuous, kAllGroups };

  /// `index` of the interface, in the caller's network namespace.
  InterfaceMembership(std::uint32_t index, Kind kind);
  ~InterfaceMembership();
  InterfaceMembership(const InterfaceMembership&) = delete;
  InterfaceMembership& operator=(const InterfaceMembership&) = delete;

 private:
  int socket_;
};

}  // namespace uroce::dpdk
