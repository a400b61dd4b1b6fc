// A worker with its port: one duty cycle. WorkerThread (worker_thread.h) turns it, and sleeps between cycles.
//
//   step(now)   receive, steered packets, commands, doorbells, timers, transmit, events. True: it did something. It
//               reads no clock and waits for nothing: what it does depends on `now`, the device and the queues
//               alone. So production, simulations and benchmarks run the same function.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <span>

#include "net/device.h"
#include "worker/duty_cycle.h"
#include "worker/worker.h"

namespace uroce::worker {

template <net::PacketDevice Device>
class WorkerLoop final : public DutyCycle, private PortControl {
 public:
  static constexpr std::size_t kBurst = 64;
  static constexpr std::size_t kTransmitBudget = 128;  ///< frames a step
  /// Of the frames of a step while users compete (SendScheduler). A user with little to send waits for two or three
  /// steps: its request, the response. More frames would also wait in the port's queues before those of the others.
  static constexpr std::int32_t kSharedTransmitCost = 8 << 10;
  static constexpr std::int32_t kNetdevBytes = 64 << 10;  ///< of the kernel's frames in a step
  static constexpr std::uint32_t kBurstsOfARing = 16;     ///< full bursts that empty a receive ring

  WorkerLoop(WorkerCore& core, Device& device) : core_(core), device_(device) {
    core_.set_port(this);
    core_.watch_device(device_.wake_fd());
  }
  ~WorkerLoop() override {
    device_.discard(std::span(tx_).subspan(tx_begin_, tx_end_ - tx_begin_));
    core_.set_port(nullptr);
  }
  WorkerLoop(const WorkerLoop&) = delete;
  WorkerLoop& operator=(const WorkerLoop&) = delete;

  bool step(Nanos now) override {
    ++core_.counters().steps;
    const std::size_t received = receive_burst(now);
    bool worked = received != 0;
    moved_ = received;
    worked |= core_.receive_steered(now);
    if (core_.commands_waiting()) [[unlikely]] {
      // What QPs have sent arrives, as on a wire, before a command ends them or their memory: it may be named only.
      // Twice: a frame that one port refused finds room once another one was emptied.
      for (int pass = 0; pass < 2; ++pass) {
        for (DutyCycle* const each : together_) each->receive_all(now);
      }
      core_.serve_commands(now);
      worked = true;
    }
    worked |= core_.serve_doorbells(now);
    full_bursts_ = received == kBurst ? full_bursts_ + 1 : 0;
    core_.advance(now, full_bursts_ % kBurstsOfARing != 0);
    worked |= transmit(now);
    core_.publish(now);
    return worked;
  }

  WorkerCore& worker() override { return core_; }
  void receive_all(Nanos now) override {
    for (std::uint32_t bursts = kBurstsOfARing; bursts != 0 && receive_burst(now) == kBurst; --bursts) {
    }
    if (refused_ != 0) offer(refused_);
  }
  void step_together_with(std::span<DutyCycle* const> all) override { together_ = all; }
  std::size_t moved() const override { return moved_; }
  bool port_refuses() const override { return refused_ != 0; }
  bool wakeable() const override { return device_.wake_fd() >= 0; }
  bool arm_wake() override { return device_.arm_wake(); }
  void disarm_wake() override { device_.disarm_wake(); }

 private:
  net::DeviceInfo info() const override { return device_.info(); }
  net::DeviceCounters counters() const override { return device_.counters(); }
  void set_rx_filter(net::RxFilter filter) override { device_.set_rx_filter(filter); }

  /// Returns how many frames there were.
  std::size_t receive_burst(Nanos now) {
    const std::size_t received = device_.receive(rx_);
    if (received == 0) return 0;
    const auto frames = std::span(rx_).first(received);
    if (!link_disabled()) core_.receive(frames, now);
    device_.release(frames);
    return received;
  }

  /// Packets may name their payload where frames to QPs of this daemon come back as they are, and nobody looks at
  /// them on the way.
  void choose_references() {
    if constexpr (requires { device_.carries_references(); }) {
      const bool sniffed = core_.shared().any_sniffers.load(std::memory_order_relaxed);
      const bool allowed = !sniffed && device_.carries_references();
      if (allowed != references_) [[unlikely]]
        core_.transport().allow_references(references_ = allowed);
    }
  }

  bool link_disabled() const { return core_.shared().link_disabled.load(std::memory_order_relaxed); }

  /// Makes room for at least one frame in tx_[tx_begin_, tx_end_). False: the device has no buffer.
  bool refill() {
    if (tx_begin_ == tx_end_) {
      tx_begin_ = 0;
      tx_end_ = device_.allocate(tx_);
    }
    return tx_begin_ != tx_end_;
  }

  /// Offers the first `count` frames. Those that the port refuses stay at the front. True: it took all.
  bool offer(std::size_t count) {
    const auto frames = std::span(tx_).subspan(tx_begin_, count);
    if (link_disabled()) [[unlikely]] {
      device_.discard(frames);
      tx_begin_ += count;
      refused_ = 0;
      return true;
    }
    const std::size_t taken = device_.transmit(frames);
    tx_begin_ += taken;
    refused_ = count - taken;
    return refused_ == 0;
  }

  bool transmit(Nanos now) {
    bool sent = false;
    if (refused_ != 0) {
      const std::size_t before = refused_;
      const bool all = offer(refused_);
      sent = refused_ != before;
      if (!all) return sent;
    }
    while (core_.link_has_frames()) {
      if (!refill()) return sent;
      base::Frame& frame = tx_[tx_begin_];
      const std::size_t n = core_.next_link_frame({frame.data, frame.capacity});
      if (n == 0) break;
      frame.length = static_cast<std::uint32_t>(n);
      frame.flags = frame.sender = 0;
      sent = true;
      core_.sniff({&frame, 1}, now);
      if (!offer(1)) return sent;
    }
    const bool shared = core_.transport().users_compete(now);
    // Who is first alternates: a port that is full takes no more than that.
    netdev_first_ = !netdev_first_;
    if (netdev_first_ && !send_for_kernel(shared, now, sent)) return sent;
    if (!send_packets(shared, now, sent)) return sent;
    if (!netdev_first_) send_for_kernel(shared, now, sent);
    return sent;
  }

  /// Each returns false when the port takes no more. `shared`: users compete.
  bool send_for_kernel(bool shared, Nanos now, bool& sent) {
    for (std::int32_t left = shared ? kSharedTransmitCost : kNetdevBytes; left > 0 && core_.netdev_waits();) {
      if (!refill()) return false;
      std::size_t count = 0;
      for (; left > 0 && tx_begin_ + count < tx_end_; ++count) {
        base::Frame& frame = tx_[tx_begin_ + count];
        frame.length = static_cast<std::uint32_t>(core_.next_netdev_frame({frame.data, frame.capacity}));
        if (frame.length == 0) break;
        frame.flags = frame.sender = 0;
        left -= static_cast<std::int32_t>(frame.length);
      }
      if (count == 0) continue;
      sent = true;
      core_.sniff(std::span(tx_).subspan(tx_begin_, count), now);
      if (!offer(count)) return false;
    }
    return true;
  }

  bool send_packets(bool shared, Nanos now, bool& sent) {
    choose_references();
    std::int32_t cost = shared ? kSharedTransmitCost : proto::TxBurst::kAnyCost;
    for (std::size_t total = 0; total < kTransmitBudget && cost > 0 && core_.transport().wants_transmit();) {
      if (!refill()) return false;
      const auto empty = std::span(tx_).subspan(tx_begin_, tx_end_ - tx_begin_);
      const std::size_t most = std::min(empty.size(), kTransmitBudget - total);
      proto::TxBurst burst{empty.first(most), 0, cost};
      core_.transport().transmit(burst, now);
      if (burst.count == 0) break;
      sent = true;
      cost = burst.cost;
      total += most - (burst.frames.size() - burst.count);
      moved_ += burst.count;
      core_.sniff(burst.frames.first(burst.count), now);
      if (!offer(burst.count)) return false;
    }
    return true;
  }

  WorkerCore& core_;
  Device& device_;
  DutyCycle* const self_ = this;
  std::span<DutyCycle* const> together_{&self_, 1};
  std::size_t moved_ = 0;          // frames of this step
  std::uint32_t full_bursts_ = 0;  // received in a row
  std::array<base::Frame, kBurst> rx_{};
  std::array<base::Frame, kBurst> tx_{};  // [tx_begin_, +refused_) filled and refused, the rest up to tx_end_ empty
  bool references_ = false;               // what the transport knows
  bool netdev_first_ = false;             // in the last step
  std::size_t tx_begin_ = 0, tx_end_ = 0, refused_ = 0;
};

}  // namespace uroce::worker
