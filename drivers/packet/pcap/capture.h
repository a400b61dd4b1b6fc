// Records the frames that pass between the worker and the inner device. Costs one load for each burst while no
// capture runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <span>
#include <utility>

#include "base/frame.h"
#include "drivers/packet/pcap/recorder.h"
#include "net/device.h"

namespace uroce::pcap {

template <net::PacketDevice Inner>
class Capture {
 public:
  template <class... Args>
  Capture(Recorder& recorder, std::uint32_t index, Args&&... inner)
      : inner_(std::forward<Args>(inner)...), recorder_(recorder), index_(index) {
    recorder.expect(index);
  }

  std::size_t receive(std::span<base::Frame> frames) {
    const std::size_t count = inner_.receive(frames);
    if (count == 0) return 0;
    if (Tap* tap = recorder_.tap(index_); tap != nullptr) {
      add(*tap, frames.first(count), Direction::kInbound);
      tap->commit(count);
    }
    return count;
  }
  void release(std::span<base::Frame> frames) { inner_.release(frames); }
  std::size_t allocate(std::span<base::Frame> frames) { return inner_.allocate(frames); }
  void discard(std::span<base::Frame> frames) { inner_.discard(frames); }

  std::size_t transmit(std::span<base::Frame> frames) {
    Tap* tap = recorder_.tap(index_);
    if (tap == nullptr) return inner_.transmit(frames);
    add(*tap, frames, Direction::kOutbound);  // copied before: the device may reuse what it takes
    const std::size_t taken = inner_.transmit(frames);
    tap->commit(taken);
    return taken;
  }

  int wake_fd() { return inner_.wake_fd(); }
  bool arm_wake() { return inner_.arm_wake(); }
  void disarm_wake() { inner_.disarm_wake(); }
  void set_rx_filter(net::RxFilter filter) { inner_.set_rx_filter(filter); }
  bool carries_references() { return recorder_.tap(index_) == nullptr && net::carries_references(inner_); }
  net::DeviceInfo info() const { return inner_.info(); }
  net::DeviceCounters counters() const { return inner_.counters(); }

  Inner& inner() { return inner_; }

 private:
  static void add(Tap& tap, std::span<const base::Frame> frames, Direction direction) {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    const auto time =
        static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
    for (const base::Frame& frame : frames) {
      // A frame without payload was sent before the capture began.
      if ((frame.flags & base::kByReference) == 0) tap.add(frame, direction, time);
    }
  }

  Inner inner_;
  Recorder& recorder_;
  std::uint32_t index_;
};

}  // namespace uroce::pcap
