// Two Ethernet ports joined by a cable, in memory and in one thread: no descriptor, no clock, and no allocation
// after construction. The sending port fills in IPv4 header checksums, as an adapter with checksum offload does.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "net/device.h"
#include "wire/network_headers.h"

namespace uroce::worker::testing {

class WireDevice {
 public:
  static constexpr std::uint32_t kFrameBytes = 4352;
  static constexpr std::size_t kBuffers = 512, kRing = 256;

  explicit WireDevice(const wire::Mac& mac) : mac_(mac), memory_(kBuffers * kFrameBytes) {
    for (std::size_t i = 0; i < kBuffers; ++i) free_.push_back(&memory_[i * kFrameBytes]);
  }

  void connect(WireDevice& peer) { peer_ = &peer; }
  /// Of the frames that are offered at once.
  void take_at_most(std::size_t frames) { most_ = frames; }
  net::RxFilter filter() const { return filter_; }

  std::size_t receive(std::span<base::Frame> frames) {
    std::size_t n = 0;
    for (; n < frames.size() && tail_ != head_; ++n) frames[n] = ring_[tail_++ % kRing];
    return n;
  }
  /// Buffers go back to the port that they were allocated from.
  void release(std::span<base::Frame> frames) {
    for (base::Frame& frame : frames) static_cast<WireDevice*>(frame.handle)->free_.push_back(frame.data);
  }
  std::size_t allocate(std::span<base::Frame> frames) {
    std::size_t n = 0;
    for (; n < frames.size() && !free_.empty(); ++n) {
      frames[n] = {free_.back(), 0, kFrameBytes, 0, 0, this};
      free_.pop_back();
    }
    return n;
  }
  std::size_t transmit(std::span<base::Frame> frames) {
    std::size_t n = 0;
    for (; n < std::min(frames.size(), most_) && peer_->head_ - peer_->tail_ < kRing; ++n) {
      base::Frame& frame = frames[n];
      if ((frame.flags & base::kIpChecksumNeeded) != 0) fill_checksum(frame);
      frame.flags = frame.sender = 0;
      peer_->ring_[peer_->head_++ % kRing] = frame;
    }
    sent_ += n;
    return n;
  }
  void discard(std::span<base::Frame> frames) { release(frames); }

  int wake_fd() { return -1; }
  bool arm_wake() { return true; }
  void disarm_wake() {}
  void set_rx_filter(net::RxFilter filter) { filter_ = filter; }
  net::DeviceInfo info() const { return {.mac = mac_, .mtu = 4300, .checksum_offload = true}; }
  net::DeviceCounters counters() const { return {.tx_packets = sent_}; }

 private:
  static void fill_checksum(base::Frame& frame) {
    std::byte* const ip = frame.data + 14;
    wire::store16(ip + 10, wire::Ipv4Header::parse(ip).right_checksum());
  }

  wire::Mac mac_;
  std::vector<std::byte> memory_;
  std::vector<std::byte*> free_;
  WireDevice* peer_ = this;
  std::array<base::Frame, kRing> ring_{};
  std::size_t head_ = 0, tail_ = 0;
  net::RxFilter filter_ = net::RxFilter::kRoceOnly;
  std::uint64_t sent_ = 0;
  std::size_t most_ = kRing;
};
static_assert(net::PacketDevice<WireDevice>);

}  // namespace uroce::worker::testing
