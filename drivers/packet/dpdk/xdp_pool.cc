#include "drivers/packet/dpdk/xdp_pool.h"

#include <linux/bpf.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include <bit>

namespace uroce::dpdk {

rte_mempool* make_xdp_pool(const std::string& name, std::uint32_t count, std::uint32_t cache, std::uint32_t room) {
  // DPDK would spread objects over the channels of the memory, with a gap after each.
  constexpr unsigned kFlags = RTE_MEMPOOL_F_NO_SPREAD;
  rte_mempool_objsz object{};
  const auto needed = static_cast<std::uint32_t>(sizeof(rte_mbuf)) + room + XDP_PACKET_HEADROOM;
  const std::uint32_t size = std::bit_ceil(rte_mempool_calc_obj_size(needed, kFlags, &object));
  return rte_mempool_create(name.c_str(), count, size - object.header_size, cache, sizeof(rte_pktmbuf_pool_private),
                            rte_pktmbuf_pool_init, nullptr, rte_pktmbuf_init, nullptr, SOCKET_ID_ANY, kFlags);
}

}  // namespace uroce::dpdk
