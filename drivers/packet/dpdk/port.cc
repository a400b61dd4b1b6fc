#include "drivers/packet/dpdk/port.h"

#include <rte_cycles.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>

#include <algorithm>
#include <utility>

#include "drivers/packet/dpdk/kernel_link.h"
#include "drivers/packet/dpdk/kernel_share.h"

namespace uroce::dpdk {
namespace {

constexpr std::uint16_t kEtherVlan = 0x8100;
constexpr std::uint64_t kLooksPerSecond = 5000;

void to_frame(rte_mbuf* mbuf, base::Frame& frame) {
  frame.data = rte_pktmbuf_mtod(mbuf, std::byte*);
  frame.length = mbuf->pkt_len;
  frame.capacity = static_cast<std::uint32_t>(mbuf->buf_len - mbuf->data_off);
  const bool good = (mbuf->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK) == RTE_MBUF_F_RX_IP_CKSUM_GOOD;
  frame.flags = good ? base::kIpChecksumGood : 0u;
  frame.sender = 0;
  frame.handle = mbuf;
}

rte_mbuf* to_mbuf(const base::Frame& frame) {
  auto* mbuf = static_cast<rte_mbuf*>(frame.handle);
  mbuf->data_len = static_cast<std::uint16_t>(frame.length);
  mbuf->pkt_len = frame.length;
  if ((frame.flags & base::kIpChecksumNeeded) != 0) {
    const auto* type = reinterpret_cast<const std::uint8_t*>(frame.data) + 12;
    const bool tagged = (type[0] << 8 | type[1]) == kEtherVlan;
    mbuf->ol_flags = RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM;
    mbuf->l2_len = tagged ? 18 : 14;
    mbuf->l3_len = 20;
  }
  return mbuf;
}

}  // namespace

class Port::GateGuard {
 public:
  explicit GateGuard(Port& port) : port_(port) {
    if (port.config_.keeper == nullptr) return;
    port.gate_.inside.store(true, std::memory_order_seq_cst);
    open_ = !port.config_.keeper->closed.load(std::memory_order_seq_cst);
  }
  ~GateGuard() {
    if (port_.config_.keeper != nullptr) port_.gate_.inside.store(false, std::memory_order_release);
  }
  explicit operator bool() const { return open_; }

 private:
  Port& port_;
  bool open_ = true;
};

bool Port::link_was_up() const {
  return config_.keeper != nullptr && config_.keeper->up.load(std::memory_order_relaxed);
}

Port::Port(const QueueConfig& config) : config_(config) {}

Port::~Port() { rte_pktmbuf_free_bulk(stash_ + kept_begin_, static_cast<unsigned>(kept_end_ - kept_begin_)); }

/// A registered thread has an lcore id of its own, and with it a cache in each mempool.
void Port::attach_thread() {
  attached_ = true;
  if (rte_lcore_id() == LCORE_ID_ANY) rte_thread_register();
}

std::size_t Port::burst(rte_mbuf** mbufs, std::size_t limit) {
  const GateGuard visit(*this);
  shut_out_ = !visit;
  if (shut_out_) return 0;
  limit = std::min(limit, kBurst);
  const std::size_t count = rte_eth_rx_burst(config_.port, config_.queue, mbufs, static_cast<std::uint16_t>(limit));
  return config_.share == nullptr ? count : count + receive_shared(mbufs + count, limit - count);
}

/// Frames that the kernel got, for the link stack. They are rare and not urgent, and each check is a system call.
std::size_t Port::receive_shared(rte_mbuf** mbufs, std::size_t limit) {
  const std::uint64_t now = rte_rdtsc();
  if (now < look_at_) return 0;
  std::size_t count = 0;
  while (count < limit) {
    rte_mbuf* mbuf = rte_pktmbuf_alloc(config_.pool);
    if (mbuf == nullptr) break;
    const std::span<std::byte> room{rte_pktmbuf_mtod(mbuf, std::byte*), rte_pktmbuf_tailroom(mbuf)};
    const std::size_t length = config_.share->receive(room);
    if (length == 0) {
      rte_pktmbuf_free(mbuf);
      look_at_ = now + rte_get_tsc_hz() / kLooksPerSecond;
      break;
    }
    mbuf->data_len = static_cast<std::uint16_t>(length);
    mbuf->pkt_len = static_cast<std::uint32_t>(length);
    mbufs[count++] = mbuf;
  }
  return count;
}

/// The frame in one segment; nullptr when it is longer than the largest frame (it is dropped and counted).
rte_mbuf* Port::contiguous(rte_mbuf* mbuf) {
  if (mbuf->nb_segs == 1) return mbuf;
  rte_mbuf* flat = rte_pktmbuf_alloc(config_.pool);
  if (flat != nullptr && mbuf->pkt_len <= rte_pktmbuf_tailroom(flat)) {
    auto* to = rte_pktmbuf_mtod(flat, std::byte*);
    for (const rte_mbuf* piece = mbuf; piece != nullptr; piece = piece->next) {
      std::copy_n(rte_pktmbuf_mtod(piece, const std::byte*), piece->data_len, to);
      to += piece->data_len;
    }
    flat->data_len = static_cast<std::uint16_t>(mbuf->pkt_len);
    flat->pkt_len = mbuf->pkt_len;
    flat->ol_flags = mbuf->ol_flags;
  } else {
    ++counters_.rx_dropped;
    rte_pktmbuf_free(flat);
    flat = nullptr;
  }
  rte_pktmbuf_free(mbuf);
  return flat;
}

std::size_t Port::receive(std::span<base::Frame> frames) {
  if (!attached_) attach_thread();
  rte_mbuf* mbufs[kBurst];
  std::size_t count = std::min(frames.size(), kept_end_ - kept_begin_);
  if (count != 0) {
    std::copy_n(stash_ + kept_begin_, count, mbufs);
    kept_begin_ += count;
  } else {
    count = burst(mbufs, frames.size());
  }
  for (std::size_t i = 0; i < std::min<std::size_t>(count, 4); ++i)
    rte_prefetch0(rte_pktmbuf_mtod(mbufs[i], void*));
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (i + 4 < count) rte_prefetch0(rte_pktmbuf_mtod(mbufs[i + 4], void*));
    rte_mbuf* mbuf = contiguous(mbufs[i]);
    if (mbuf == nullptr) continue;
    counters_.rx_bytes += mbuf->pkt_len;
    to_frame(mbuf, frames[kept++]);
  }
  counters_.rx_packets += kept;
  return kept;
}

void Port::release(std::span<base::Frame> frames) {
  while (!frames.empty()) {
    rte_mbuf* mbufs[kBurst];
    const std::size_t count = std::min(frames.size(), kBurst);
    for (std::size_t i = 0; i < count; ++i) mbufs[i] = static_cast<rte_mbuf*>(frames[i].handle);
    rte_pktmbuf_free_bulk(mbufs, static_cast<unsigned>(count));
    frames = frames.subspan(count);
  }
}

std::size_t Port::allocate(std::span<base::Frame> frames) {
  if (!attached_) attach_thread();
  rte_mbuf* mbufs[kBurst];
  std::size_t count = std::min(frames.size(), kBurst);
  while (count != 0 && rte_pktmbuf_alloc_bulk(config_.pool, mbufs, static_cast<unsigned>(count)) != 0) count /= 2;
  for (std::size_t i = 0; i < count; ++i) to_frame(mbufs[i], frames[i]);
  return count;
}

std::size_t Port::transmit(std::span<base::Frame> frames) {
  std::size_t taken = 0;
  {
    const GateGuard visit(*this);
    if (!visit && link_was_up()) return 0;
    // The link is down: frames are lost, as on an unplugged cable. A driver may keep them until its ring is full.
    if (!visit || (config_.keeper == nullptr && !config_.carrier->load(std::memory_order_relaxed))) {
      counters_.tx_dropped += frames.size();
      release(frames);
      return frames.size();
    }
    while (taken < frames.size()) {
      rte_mbuf* mbufs[kBurst];
      const std::size_t count = std::min(frames.size() - taken, kBurst);
      std::uint64_t bytes[kBurst];
      for (std::size_t i = 0; i < count; ++i) {
        mbufs[i] = to_mbuf(frames[taken + i]);
        bytes[i] = frames[taken + i].length;
      }
      std::uint16_t offered = static_cast<std::uint16_t>(count);
      if (config_.tx_prepare) offered = rte_eth_tx_prepare(config_.port, config_.queue, mbufs, offered);
      const std::uint16_t sent =
          offered == 0 ? std::uint16_t{0} : rte_eth_tx_burst(config_.port, config_.queue, mbufs, offered);
      for (std::size_t i = 0; i < sent; ++i) counters_.tx_bytes += bytes[i];
      counters_.tx_packets += sent;
      taken += sent;
      if (offered < count && sent == offered) {  // the driver will never accept this frame
        ++counters_.tx_dropped;
        rte_pktmbuf_free(mbufs[offered]);
        ++taken;
      } else if (sent < count) {
        break;
      }
    }
  }
  if (taken != 0 && config_.waker != nullptr) config_.waker->sent();
  return taken;
}

int Port::wake_fd() const { return config_.waker == nullptr ? -1 : config_.waker->fd(); }

bool Port::arm_wake() {
  if (kept_begin_ != kept_end_) return false;
  if (config_.waker == nullptr) return true;
  const std::uint64_t received = counters_.rx_packets;
  config_.waker->arm(std::exchange(received_at_arm_, received) == received);
  look_at_ = 0;  // frames of the kernel that have come already end each sleep
  kept_begin_ = 0;
  kept_end_ = burst(stash_, kBurst);
  // A peer that sent before the waker was armed does not ring, and a closed gate hides its frames.
  return kept_end_ == 0 && !(shut_out_ && link_was_up());
}

void Port::disarm_wake() {
  if (config_.waker != nullptr) config_.waker->disarm();
}

void Port::set_rx_filter(net::RxFilter filter) {
  if (config_.share != nullptr) config_.share->show_all(filter != net::RxFilter::kRoceOnly);
  const bool promiscuous = filter == net::RxFilter::kPromiscuous;
  if (config_.promiscuous) return;
  if (config_.info.kernel_interface != 0) {
    using Kind = InterfaceMembership::Kind;
    const std::uint32_t index = config_.info.kernel_interface;
    all_frames_ = promiscuous ? std::make_unique<InterfaceMembership>(index, Kind::kPromiscuous) : nullptr;
  } else if (promiscuous) {
    rte_eth_promiscuous_enable(config_.port);
  } else {
    rte_eth_promiscuous_disable(config_.port);
  }
}

net::DeviceInfo Port::info() const {
  net::DeviceInfo info = config_.info;
  rte_eth_link link{};
  if (rte_eth_link_get_nowait(config_.port, &link) == 0) {
    info.link = link.link_status == RTE_ETH_LINK_UP ? net::LinkState::kUp : net::LinkState::kNoCarrier;
    // The speed that the driver of memif reports is arbitrary.
    const bool known = link.link_speed != RTE_ETH_SPEED_NUM_UNKNOWN && config_.keeper == nullptr;
    info.speed_mbps = known ? link.link_speed : 0;
  }
  if (config_.link != nullptr) info.link = config_.link->read();
  config_.carrier->store(info.link == net::LinkState::kUp, std::memory_order_relaxed);
  return info;
}

net::DeviceCounters Port::counters() const {
  net::DeviceCounters counters = counters_;
  rte_eth_stats stats{};
  if (config_.queue == 0 && rte_eth_stats_get(config_.port, &stats) == 0) {
    counters.rx_dropped += stats.imissed + stats.rx_nombuf + stats.ierrors;
    counters.tx_dropped += stats.oerrors;
  }
  return counters;
}

}  // namespace uroce::dpdk
