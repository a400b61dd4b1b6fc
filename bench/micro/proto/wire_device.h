// A port whose wire is memory: a frame goes to the peer in the buffer that it was written to, and comes back when
// the peer releases it. A ring of few frames, so that all of them stay in the L1 and L2 caches.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "net/device.h"

namespace uroce::bench {

class WireDevice {
 public:
  static constexpr std::uint32_t kFrames = 64;
  static constexpr std::uint32_t kFrameBytes = 4096 + 256;

  WireDevice() : memory_(std::size_t{kFrames} * kFrameBytes) {
    for (std::uint32_t i = 0; i < kFrames; ++i) free_[i] = memory_.data() + std::size_t{i} * kFrameBytes;
  }
  WireDevice(const WireDevice&) = delete;
  WireDevice& operator=(const WireDevice&) = delete;

  void connect(WireDevice& peer) { peer_ = &peer; }
  std::byte* frame(std::uint32_t i) { return memory_.data() + std::size_t{i % kFrames} * kFrameBytes; }

  // net::PacketDevice
  std::size_t receive(std::span<base::Frame> frames) {
    const std::size_t count = std::min(frames.size(), arrived_count_);
    std::copy_n(arrived_.begin(), count, frames.begin());
    std::copy(arrived_.begin() + static_cast<std::ptrdiff_t>(count),
              arrived_.begin() + static_cast<std::ptrdiff_t>(arrived_count_), arrived_.begin());
    arrived_count_ -= count;
    return count;
  }
  void release(std::span<const base::Frame> frames) {
    for (const base::Frame& frame : frames) static_cast<WireDevice*>(frame.handle)->take_back(frame);
  }
  std::size_t allocate(std::span<base::Frame> frames) {
    const std::size_t count = std::min<std::size_t>(frames.size(), free_count_);
    for (base::Frame& frame : frames.first(count)) frame = {free_[--free_count_], 0, kFrameBytes, 0, 0, this};
    return count;
  }
  std::size_t transmit(std::span<base::Frame> frames) {
    std::copy(frames.begin(), frames.end(),
              peer_->arrived_.begin() + static_cast<std::ptrdiff_t>(peer_->arrived_count_));
    for (std::size_t i = 0; i < frames.size(); ++i) {
      base::Frame& arrived = peer_->arrived_[peer_->arrived_count_ + i];
      arrived.flags = arrived.sender = 0;
    }
    peer_->arrived_count_ += frames.size();
    return frames.size();
  }
  void discard(std::span<const base::Frame> frames) { release(frames); }
  int wake_fd() { return -1; }
  bool arm_wake() { return arrived_count_ == 0; }
  void disarm_wake() {}
  void set_rx_filter(net::RxFilter) {}
  net::DeviceInfo info() const { return {.mtu = kFrameBytes}; }
  net::DeviceCounters counters() const { return {}; }

 private:
  void take_back(const base::Frame& frame) { free_[free_count_++] = frame.data; }

  WireDevice* peer_ = this;
  std::vector<std::byte> memory_;
  std::array<std::byte*, kFrames> free_{};
  std::size_t free_count_ = kFrames;
  std::array<base::Frame, kFrames> arrived_{};  ///< all of the peer's frames fit
  std::size_t arrived_count_ = 0;
};
static_assert(net::PacketDevice<WireDevice>);

}  // namespace uroce::bench
