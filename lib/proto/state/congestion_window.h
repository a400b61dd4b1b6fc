// The congestion window of one QP, in bytes, with three hooks for a congestion control algorithm. This one is
// additive increase, multiplicative decrease with slow start (RFC 5681).
#pragma once

#include <algorithm>
#include <cstdint>

namespace uroce::proto {

/// What a packet costs in addition to its payload: headers and a descriptor.
inline constexpr std::uint32_t kPacketCost = 64;

class CongestionWindow {
 public:
  /// As of TCP (RFC 6928). Many connections that begin at the same time lose what exceeds the memory of a switch.
  static constexpr std::uint32_t kStart = 16u << 10;
  static constexpr std::uint32_t kLargest = 2u << 20;

  /// The state before the first packet. `packet` is the cost of a full packet, and the smallest window.
  void reset(std::uint32_t start, std::uint32_t packet) {
    smallest_ = packet;
    bytes_ = std::max(start, packet);
    threshold_ = kLargest;
    credit_ = 0;
  }

  std::uint32_t bytes() const { return bytes_; }

  void on_ack(std::uint32_t acked) {
    if (bytes_ >= kLargest) return;
    if (bytes_ < threshold_) {
      bytes_ = std::min(bytes_ + acked, kLargest);
      return;
    }
    credit_ += acked;
    if (credit_ >= bytes_) {
      credit_ -= bytes_;
      bytes_ = std::min(bytes_ + smallest_, kLargest);
    }
  }
  /// A packet was lost or marked.
  void on_congestion() {
    threshold_ = bytes_ = std::max(bytes_ / 2, smallest_);
    credit_ = 0;
  }
  void on_timeout() {
    threshold_ = std::max(bytes_ / 2, smallest_);
    bytes_ = smallest_;
    credit_ = 0;
  }

 private:
  std::uint32_t bytes_ = kStart;
  std::uint32_t threshold_ = kLargest;  // slow start below
  std::uint32_t credit_ = 0;            // acknowledged since the window last grew
  std::uint32_t smallest_ = 4096;
};

}  // namespace uroce::proto
