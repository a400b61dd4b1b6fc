// Packet buffers of an af_xdp port.
//
// The driver (22.11) registers one chunk of memory with the kernel and takes its size to be the number of buffers
// times their size. DPDK lets no buffer cross a page, so there is more memory than that, and the kernel refuses
// each buffer after the end: a frame to be sent is lost and delays those after it, a buffer to receive into is
// lost.
#pragma once

#include <cstdint>
#include <string>

struct rte_mempool;

namespace uroce::dpdk {

/// `count` buffers with `room` bytes each, headroom included, or more: with what DPDK and the kernel put in front
/// of them their size is a power of two, so that they fill pages without gaps. nullptr: no memory.
rte_mempool* make_xdp_pool(const std::string& name, std::uint32_t count, std::uint32_t cache, std::uint32_t room);

}  // namespace uroce::dpdk
