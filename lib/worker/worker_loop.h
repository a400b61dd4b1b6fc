// A worker with its device: the duty cycle, and when to sleep between cycles.
//
//   step(now)   one duty cycle: receive, steered packets, commands, doorbells, timers, transmit, events. True:
//               there was something to do. It reads no clock and waits for nothing: what it does depends on `now`,
//               the device and the queues alone. So production, simulations and benchmarks run the same function.
//   run(stop)   cycles until `stop`, sleeping as PollPolicy decides. Production only.
#pragma once

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <span>
#include <utility>

#include "base/spinlock.h"
#include "net/device.h"
#include "platform/clock.h"
#include "platform/scheduling.h"
#include "worker/duty_cycle.h"
#include "worker/worker.h"

namespace uroce::daemon {

/// Gives the calling thread its name, its CPU, timers without slack and a short scheduling slice.
void prepare_worker_thread(const WorkerConfig& config);

template <net::PacketDevice Device>
class WorkerLoop final : private PortControl {
 public:
  static constexpr std::size_t kBurst = 64;
  static constexpr std::size_t kTransmitBudget = 128;  ///< frames a step
  /// Of the frames of a step while users compete (SendScheduler). A user with little to send waits for two or three
  /// steps: its request, the response. More frames would also wait in the port's queues before those of the others.
  static constexpr std::int32_t kSharedTransmitCost = 8 << 10;
  static constexpr std::uint32_t kBurstsOfARing = 16;  ///< full bursts that empty a receive ring

  WorkerLoop(WorkerCore& core, Device& device)
      : core_(core), device_(device), policy_(poll_config(core, device)), cycle_(core.counters()) {
    core_.set_port(this);
    core_.watch_device(device_.wake_fd());
  }
  ~WorkerLoop() {
    device_.discard(std::span(tx_).subspan(tx_begin_, tx_end_ - tx_begin_));
    core_.set_port(nullptr);
  }
  WorkerLoop(const WorkerLoop&) = delete;
  WorkerLoop& operator=(const WorkerLoop&) = delete;

  bool step(Nanos now) {
    ++core_.counters().steps;
    const std::size_t received = device_.receive(rx_);
    if (received != 0) {
      const auto frames = std::span(rx_).first(received);
      if (!link_disabled()) core_.receive(frames, now);
      device_.release(frames);
    }
    bool worked = received != 0;
    moved_ = received;
    worked |= core_.receive_steered(now);
    worked |= core_.serve_commands(now);
    worked |= core_.serve_doorbells();
    full_bursts_ = received == kBurst ? full_bursts_ + 1 : 0;
    core_.advance(now, full_bursts_ % kBurstsOfARing != 0);
    worked |= transmit(now);
    core_.publish(now);
    return worked;
  }

  void run(const std::atomic<bool>& stop) {
    prepare_worker_thread(core_.config());
    core_.note_thread();
    cycle_.resume(monotonic_now());
    while (!stop.load(std::memory_order_relaxed)) {
      const Nanos now = monotonic_now();
      cycle_.begin(now);
      const bool worked = step(now);
      const bool few_cores = core_.shared().few_cores.load(std::memory_order_relaxed);
      if (worked) {
        policy_.worked();
        if (few_cores) yield_or_repin(now);
        continue;
      }
      switch (policy_.idle(now, few_cores, few_cores && core_.clients_are_yielding(now))) {
        case IdleAction::kSpin: base::cpu_relax(); break;
        case IdleAction::kYield: yield(now); break;
        case IdleAction::kSleep: sleep(now, stop); break;
      }
    }
    core_.serve_commands(monotonic_now());
  }

 private:
  /// Longest sleep while the port refuses frames: they are offered again after it.
  static constexpr Nanos kBackpressureNap = 20 * kMicrosecond;

  /// After this many yields with no more than a message or two between them, worker and programs alternate, and the
  /// worker takes a slice as long as theirs. With more work it keeps its short slice, so that it runs more often
  /// than the programs that wait for it.
  static constexpr std::uint32_t kTurns = 64;
  static constexpr Nanos kRepinInterval = 20 * kMillisecond;
  static constexpr std::uint32_t kManyLargeSteps = 100;  ///< in an interval
  static constexpr std::size_t kFewFrames = 4;           ///< received and sent in a step

  net::DeviceInfo info() const override { return device_.info(); }
  net::DeviceCounters counters() const override { return device_.counters(); }
  void set_rx_filter(net::RxFilter filter) override { device_.set_rx_filter(filter); }

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

  static PollPolicyConfig poll_config(const WorkerCore& core, Device& device) {
    PollPolicyConfig config = core.config().poll;
    config.wakeable = device.wake_fd() >= 0;
    return config;
  }

  /// With fewer cores than pollers, after a step that found work.
  void yield_or_repin(Nanos now) {
    if (moved_ > kFewFrames) {
      ++large_steps_;
      leave_yield_mode();
    }
    repin(now);
    if (core_.take_rnr_drops() && policy_.should_yield_after_drop(now, true)) [[unlikely]]
      yield(now);
  }

  /// Moves a busy worker to a core of its own. Two workers on one core carry half as much, and the scheduler does
  /// not separate threads that all run. A worker with single messages stays: waking it on another core takes
  /// longer, most of all in virtual machines.
  void repin(Nanos now) {
    if (now < next_repin_) return;
    next_repin_ = now + kRepinInterval;
    if (std::exchange(large_steps_, 0) < kManyLargeSteps) return;
    const std::uint32_t first = core_.shared().first_core.load(std::memory_order_relaxed);
    if (first != WorkerShared::kAnywhere) move_to_core(first + core_.config().index);
  }

  void leave_yield_mode() {
    if (std::exchange(turns_, 0) >= kTurns) set_sched_slice(SchedSlice::kShort);
  }

  void yield(Nanos now) {
    if (++turns_ == kTurns) set_sched_slice(SchedSlice::kUsual);
    ::sched_yield();
    const Nanos resumed = monotonic_now();
    policy_.yielded(now, resumed - now);
    cycle_.resume(resumed);
  }

  void sleep(Nanos now, const std::atomic<bool>& stop) {
    leave_yield_mode();
    core_.announce_sleep();
    if (!core_.work_waiting() && !stop.load(std::memory_order_seq_cst) && device_.arm_wake()) {
      Nanos limit = policy_.nap(core_.until_timer(now));
      if (refused_ != 0) limit = std::min(limit, kBackpressureNap);
      if (limit != 0) core_.wait(limit);
      const Nanos resumed = monotonic_now();
      policy_.slept(resumed - now);
      cycle_.resume(resumed);
    }
    device_.disarm_wake();
    core_.end_sleep();
  }

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
    choose_references();
    const bool shared = core_.transport().users_compete(now);
    std::int32_t cost = shared ? kSharedTransmitCost : proto::TxBurst::kAnyCost;
    for (std::size_t total = 0; total < kTransmitBudget && cost > 0 && core_.transport().wants_transmit();) {
      if (!refill()) return sent;
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
      if (!offer(burst.count)) return sent;
    }
    return sent;
  }

  WorkerCore& core_;
  Device& device_;
  PollPolicy policy_;
  DutyCycleTracker cycle_;
  std::uint32_t turns_ = 0;  // yields since the last sleep or large step
  Nanos next_repin_ = 0;
  std::uint32_t large_steps_ = 0;  // steps with more than kFewFrames, in this interval
  std::size_t moved_ = 0;          // frames of this step
  std::uint32_t full_bursts_ = 0;  // received in a row
  std::array<base::Frame, kBurst> rx_{};
  std::array<base::Frame, kBurst> tx_{};  // [tx_begin_, +refused_) filled and refused, the rest up to tx_end_ empty
  bool references_ = false;               // what the transport knows
  std::size_t tx_begin_ = 0, tx_end_ = 0, refused_ = 0;
};

}  // namespace uroce::daemon
