// An Ethernet switch in memory between the devices of one process, as one worker thread sees it: a port for each
// device's queue of that thread. Frames change hands with their buffers, without a copy and without a lock.
//
// A frame goes to the port with its destination address. A group's frame goes to all other ports, and one to an
// address that no port has goes to those that are promiscuous, as a switch would flood it; these are copies. The
// switch does not learn: each port has one address, which no other port can claim.
//
// A full port makes its senders wait; of a copy it gets none, and counts that as dropped.
//
// `--port loopback` is LoopbackDevice<SwitchPort>: without DPDK, hugepages or privileges.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/frame.h"
#include "drivers/packet/frame_pool.h"
#include "net/device.h"

namespace uroce::ethernet {

class SwitchPort;

class Switch {
 public:
  /// `buffers`: of all ports together. Throws std::bad_alloc when there is no memory for them.
  Switch(std::uint32_t mtu, std::uint32_t buffers) : mtu_(mtu), pool_(mtu, buffers) {}
  Switch(const Switch&) = delete;
  Switch& operator=(const Switch&) = delete;

  std::uint32_t mtu() const { return mtu_; }
  std::size_t free_buffers() const { return pool_.available(); }

 private:
  friend class SwitchPort;
  /// nullptr: no port has the address.
  SwitchPort* port_of(std::uint64_t mac) const;
  /// Gives copies of a frame to all ports but `from` that want it.
  void flood(const SwitchPort& from, const base::Frame& frame, bool group);

  const std::uint32_t mtu_;
  packet::FramePool pool_;
  std::vector<SwitchPort*> ports_;
  std::unordered_map<std::uint64_t, SwitchPort*> by_mac_;
};

class SwitchPort {
 public:
  static constexpr std::uint32_t kSlots = 512;

  /// No other port of the switch has the address, and the switch outlives the port.
  SwitchPort(Switch& joined, const wire::Mac& mac);
  ~SwitchPort();
  SwitchPort(const SwitchPort&) = delete;
  SwitchPort& operator=(const SwitchPort&) = delete;

  std::size_t receive(std::span<base::Frame> frames);
  void release(std::span<base::Frame> frames) { discard(frames); }
  std::size_t allocate(std::span<base::Frame> frames) { return switch_.pool_.allocate(frames); }
  std::size_t transmit(std::span<base::Frame> frames);
  void discard(std::span<base::Frame> frames) { switch_.pool_.give_back(frames); }

  int wake_fd() const { return wake_fd_; }
  bool arm_wake() { return head_ == tail_; }
  void disarm_wake() {}
  void set_rx_filter(net::RxFilter filter) { filter_ = filter; }
  bool carries_references() const { return true; }
  net::DeviceInfo info() const { return {.mac = mac_, .mtu = switch_.mtu(), .switched = true}; }
  net::DeviceCounters counters() const { return counters_; }

 private:
  friend class Switch;
  bool is_full() const { return head_ - tail_ == kSlots; }
  void put(const base::Frame& frame);

  Switch& switch_;
  const wire::Mac mac_;
  int wake_fd_ = -1;  // never written: what arrives is sent by this port's own thread
  net::RxFilter filter_ = net::RxFilter::kRoceOnly;
  net::DeviceCounters counters_;
  std::uint32_t head_ = 0, tail_ = 0;
  base::Frame ring_[kSlots];
};

}  // namespace uroce::ethernet
