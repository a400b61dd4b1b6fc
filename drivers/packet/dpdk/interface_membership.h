// A kernel interface that shows more frames than those for its own addresses, for as long as somebody wants them.
#pragma once

#include <cstdint>

namespace uroce::dpdk {

/// A packet_mreq, packet(7): counted by the kernel, so it ends with this object or its process and takes nothing
/// from others. DPDK's drivers of kernel interfaces set and clear the interface's flags instead, whoever set them,
/// and leave them behind when they are killed, or know nothing of groups. Does nothing where the kernel refuses.
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
