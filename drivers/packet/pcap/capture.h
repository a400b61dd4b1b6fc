// Records the frames that pass between the worker and the inner device. Costs one load for each burst while no
// capture runs.
#pragma once

#include <cstddef>
#include <cstdint>
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
      tap->add(frames.first(count), Direction::kInbound, realtime_ns());
      tap->commit(frames.first(count));
    }
    return count;
  }
  void release(std::span<base::Frame> frames) { inner_.release(frames); }
  std::size_t allocate(std::span<base::Frame> frames) { return inner_.allocate(frames); }
  void discard(std::span<base::Frame> frames) { inner_.discard(frames); }

  std::size_t transmit(std::span<base::Frame> frames) {
    Tap* tap = recorder_.tap(index_);
    if (tap == nullptr) return inner_.transmit(frames);
    // Copied before: the device may reuse what it takes.
    tap->add(frames, Direction::kOutbound, realtime_ns());
    const std::size_t taken = inner_.transmit(frames);
    tap->commit(frames.first(taken));
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
  Inner inner_;
  Recorder& recorder_;
  std::uint32_t index_;
};

}  // namespace uroce::pcap
