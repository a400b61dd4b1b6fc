// One queue pair of an ethdev as a PacketDevice: one worker's share of an Ethernet port (ethernet.h opens it).
//
// Frames are mbufs, in place: Frame::handle is the rte_mbuf. Each queue has its own mempool, sized so that a frame
// of the largest size fits one buffer; frames that a driver delivers in several segments are made contiguous.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/frame.h"
#include "drivers/packet/dpdk/interface_membership.h"
#include "drivers/packet/dpdk/waker.h"
#include "net/device.h"

struct rte_mbuf;
struct rte_mempool;

namespace uroce::dpdk {

class KernelLink;
class KernelShare;

/// Keeps workers out of a driver while its link changes (link_keeper.h).
/// Edges: enter() stores `inside` and then loads `closed`; LinkKeeper stores `closed` and then loads `inside`; all
/// seq_cst, so one of them sees the other.
struct alignas(64) Gate {
  std::atomic<bool> inside{false};
};
struct alignas(64) DriverGate {
  std::atomic<bool> closed{false};
  std::atomic<bool> up{false};  ///< the link was up at the last check, so a closed gate opens again shortly
};

struct QueueConfig {
  std::uint16_t port = 0;
  std::uint16_t queue = 0;
  rte_mempool* pool = nullptr;
  net::DeviceInfo info;
  bool promiscuous = false;            ///< permanently: the port can't be given its MAC address
  bool tx_prepare = false;             ///< offloads are on: call rte_eth_tx_prepare() for each burst
  const DriverGate* keeper = nullptr;  ///< nullptr: the driver needs no gate
  KernelShare* share = nullptr;        ///< source of frames that the kernel got; nullptr: the queue gets all frames
  const KernelLink* link = nullptr;    ///< nullptr: the driver knows the state of the link
  std::atomic<bool>* carrier = nullptr;  ///< of all queues: whether the last info() found the link up
  Waker* waker = nullptr;                ///< nullptr: arriving frames can't wake a sleeper
};

class Port {
 public:
  static constexpr std::size_t kBurst = 64;

  explicit Port(const QueueConfig& config);
  ~Port();
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  std::size_t receive(std::span<base::Frame> frames);
  void release(std::span<base::Frame> frames);
  std::size_t allocate(std::span<base::Frame> frames);
  std::size_t transmit(std::span<base::Frame> frames);
  void discard(std::span<base::Frame> frames) { release(frames); }

  int wake_fd() const;
  bool arm_wake();
  void disarm_wake();
  void set_rx_filter(net::RxFilter filter);
  net::DeviceInfo info() const;
  net::DeviceCounters counters() const;

  Gate& gate() { return gate_; }

 private:
  /// The worker may use the driver while a guard exists that tests true. False: the link is changing.
  class GateGuard;
  /// The link was up at the last check: if the gate is closed, it opens again shortly.
  bool link_was_up() const;

  std::size_t burst(rte_mbuf** mbufs, std::size_t limit);
  std::size_t receive_shared(rte_mbuf** mbufs, std::size_t limit);
  rte_mbuf* contiguous(rte_mbuf* mbuf);
  void attach_thread();

  QueueConfig config_;
  Gate gate_;
  bool attached_ = false;
  bool shut_out_ = false;      // burst() found the gate closed
  std::uint64_t look_at_ = 0;  // TSC: when receive_shared() looks for frames of the kernel again
  rte_mbuf* stash_[kBurst];    // received by arm_wake() when it checked the ring
  std::size_t kept_begin_ = 0, kept_end_ = 0;
  net::DeviceCounters counters_;
  std::uint64_t received_at_arm_ = 0;  // packets
  std::unique_ptr<InterfaceMembership> all_frames_;
};

}  // namespace uroce::dpdk
