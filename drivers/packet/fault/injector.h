// Drops, duplicates, reorders, delays and corrupts frames on their way to and from the inner device, as a
// SharedPlan specifies. Costs one relaxed load for each burst while the plan is off.
#pragma once

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>

#include "base/frame.h"
#include "drivers/packet/fault/lane.h"
#include "drivers/packet/fault/marks.h"
#include "drivers/packet/fault/plan.h"
#include "net/device.h"
#include "platform/clock.h"

namespace uroce::fault {

template <net::PacketDevice Inner>
class Injector {
 public:
  static constexpr std::size_t kBurst = 64;
  /// In Frame::flags from receive to release: a duplicate, in a buffer that was allocated here.
  static constexpr std::uint32_t kCopy = 1u << 30;

  /// `index`: each worker draws its own random sequence.
  template <class... Args>
  Injector(SharedPlan& plan, std::uint32_t index, Args&&... inner)
      : inner_(std::forward<Args>(inner)...), shared_(plan), index_(index) {}
  ~Injector() {
    for (Direction* lane : {&receive_, &transmit_}) {
      lane->start(Plan{}, 0);
      lane->release_due(0);
    }
    for (base::Frame& frame : receive_.ready()) release(std::span(&frame, 1));
    for (base::Frame& frame : transmit_.ready()) inner_.discard(std::span(&frame, 1));
  }
  Injector(const Injector&) = delete;
  Injector& operator=(const Injector&) = delete;

  std::size_t receive(std::span<base::Frame> frames) {
    if (quiet()) return inner_.receive(frames);
    const Nanos now = monotonic_now();
    transmit_.release_due(now);
    flush();
    std::array<base::Frame, kBurst> burst;
    const std::size_t count = receive_.ready().size() < kBurst
                                  ? inner_.receive(std::span(burst).first(std::min(frames.size(), kBurst)))
                                  : 0;
    for (base::Frame& frame : std::span(burst).first(count)) meet(receive_, frame, now, true);
    receive_.release_due(now);
    std::size_t out = 0;
    while (out < frames.size() && !receive_.ready().empty()) {
      frames[out++] = receive_.ready().front();
      receive_.ready().pop_front();
    }
    return out;
  }

  void release(std::span<base::Frame> frames) {
    if (!copies_out_) return inner_.release(frames);
    for (base::Frame& frame : frames) {
      const auto one = std::span(&frame, 1);
      if ((frame.flags & kCopy) != 0) {
        inner_.discard(one);
      } else {
        inner_.release(one);
      }
    }
  }

  std::size_t allocate(std::span<base::Frame> frames) { return inner_.allocate(frames); }
  void discard(std::span<base::Frame> frames) { inner_.discard(frames); }

  std::size_t transmit(std::span<base::Frame> frames) {
    if (quiet()) return inner_.transmit(frames);
    flush();
    if (transmit_.ready().size() >= Direction::kMaxWaiting) return 0;
    const Nanos now = monotonic_now();
    for (base::Frame& frame : frames) meet(transmit_, frame, now, false);
    transmit_.release_due(now);
    flush();
    return frames.size();
  }

  int wake_fd() { return inner_.wake_fd(); }
  /// The worker must not sleep while frames are held here.
  bool arm_wake() {
    if (receive_.empty() && transmit_.empty()) return inner_.arm_wake();
    ::sched_yield();
    return false;
  }
  void disarm_wake() { inner_.disarm_wake(); }
  void set_rx_filter(net::RxFilter filter) { inner_.set_rx_filter(filter); }
  bool carries_references() { return quiet() && net::carries_references(inner_); }
  net::DeviceInfo info() const { return inner_.info(); }
  net::DeviceCounters counters() const { return inner_.counters(); }

  Inner& inner() { return inner_; }

 private:
  /// True: there is nothing to inject, and no frame is held from an earlier plan.
  bool quiet() {
    const std::uint32_t version = shared_.version();
    if (version != seen_) {
      seen_ = version;
      const Plan plan = shared_.plan();
      receive_.start(plan, 2ull * index_);
      transmit_.start(plan, 2ull * index_ + 1);
      busy_ = true;
    }
    if (!busy_) return true;
    busy_ = receive_.active() || transmit_.active() || !receive_.empty() || !transmit_.empty();
    return !busy_;
  }

  void meet(Direction& lane, base::Frame& frame, Nanos now, bool received) {
    // A frame without payload was sent before the plan was there.
    if (!lane.active() || (frame.flags & base::kByReference) != 0) return lane.pass(frame);
    const Verdict verdict = lane.judge(frame, now, shared_);
    if (verdict.drop) return drop(frame, received);
    if (verdict.nak_syndrome != 0 && Direction::refuse(frame, verdict)) {
      frame.flags |= kMarkRefused;
      shared_.count(SharedPlan::kRefused);
    }
    base::Frame copy;
    const bool twice = verdict.duplicate && duplicate(frame, copy, received);
    if (verdict.corrupt) Direction::corrupt(frame, verdict);
    if (twice) frame.flags |= kMarkDuplicated;
    if (verdict.corrupt) frame.flags |= kMarkCorrupted;
    if (verdict.hold_until != 0) {
      frame.flags |= kMarkHeld;
      lane.hold(frame, verdict);
    } else {
      lane.pass(frame);
    }
    if (!twice) return;
    if (verdict.queued) {
      lane.hold(copy, verdict);
    } else {
      lane.pass(copy);
    }
  }

  void drop(base::Frame& frame, bool received) {
    const auto one = std::span(&frame, 1);
    if (received && shared_.observer() != nullptr) shared_.observer()->lost(index_, frame);
    if (received) return inner_.release(one);
    inner_.discard(one);
    frame.flags |= kMarkDropped;
  }

  bool duplicate(const base::Frame& frame, base::Frame& copy, bool received) {
    if (inner_.allocate(std::span(&copy, 1)) == 0) return false;
    if (copy.capacity < frame.length) return inner_.discard(std::span(&copy, 1)), false;
    std::memcpy(copy.data, frame.data, frame.length);
    copy.length = frame.length;
    copy.sender = frame.sender;
    copy.flags =
        received ? (frame.flags & (base::kIpChecksumGood | std::uint32_t{kMarkRefused})) | kMarkDuplicated | kCopy
                 : frame.flags;
    copies_out_ |= received;
    return true;
  }

  void flush() {
    auto& ready = transmit_.ready();
    while (!ready.empty()) {
      if (inner_.transmit(std::span(&ready.front(), 1)) == 0) return;
      ready.pop_front();
    }
  }

  Inner inner_;
  SharedPlan& shared_;
  std::uint32_t index_;
  std::uint32_t seen_ = 0;
  bool busy_ = false;
  bool copies_out_ = false;  // a duplicate was handed out: release() must check the flags
  Direction receive_{pcap::Direction::kInbound}, transmit_{pcap::Direction::kOutbound};
};

}  // namespace uroce::fault
