// Arguments for DPDK's af_packet driver, derived from the kernel interface.
#pragma once

#include <cstdint>
#include <string>

#include "drivers/packet/dpdk/ethernet.h"

namespace uroce::dpdk {

/// MTU of a kernel interface of this network namespace; 0: there is no such interface.
std::uint32_t interface_mtu(const std::string& name);

/// Bytes of a ring frame that packets can't have: the kernel's header and the Ethernet header with its tag.
inline constexpr std::uint32_t kAfPacketFrameOverhead = 96;
inline constexpr std::uint32_t kAfPacketFrame = 2048;  ///< the driver's default framesz

/// Fills in rings that take packets of `mtu` bytes, unless the user said otherwise.
void add_af_packet_rings(VdevSpec& spec, std::uint32_t mtu);

}  // namespace uroce::dpdk
