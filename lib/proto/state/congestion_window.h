// The congestion window of one QP, in bytes: a controller as state/congestion.h asks it. Additive increase,
// multiplicative decrease with slow start (RFC 5681).
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/types.h"

namespace uroce::proto {

/// What a packet costs in addition to its payload: headers and a descriptor.
inline constexpr std::uint32_t kPacketCost = 64;

/// Why a QP has to send less.
enum class CongestionCause : std::uint8_t {
  kLoss,     ///< a NAK, or a response that is missing
  kMarked,   ///< a switch marked a response (RFC 3168)
  kCnp,      ///< it marked a request, says the peer (annex A17)
  kTimeout,  ///< no answer at all
};

/// What an acknowledge says.
struct AckSample {
  std::uint32_t bytes;  ///< cost of what it acknowledged
  Nanos now;
  Nanos round_trip;  ///< smoothed; 0: not known
};

class CongestionWindow {
 public:
  /// As of TCP (RFC 6928). Many connections that begin at the same time lose what exceeds the memory of a switch.
  static constexpr std::uint32_t kStart = 16u << 10;
  static constexpr std::uint32_t kLargest = 2u << 20;

  /// The state before the first packet. `packet`, here and below: cost of a full packet, and the smallest window.
  void reset(std::uint32_t start, std::uint32_t packet) {
    bytes_ = std::max(start, packet);
    threshold_ = kLargest;
    credit_ = 0;
  }

  std::uint32_t bytes() const { return bytes_; }

  void on_ack(const AckSample& sample, std::uint32_t packet) {
    if (bytes_ >= kLargest) return;
    if (bytes_ < threshold_) {
      bytes_ = std::min(bytes_ + sample.bytes, kLargest);
      return;
    }
    credit_ += sample.bytes;
    if (credit_ >= bytes_) {
      credit_ -= bytes_;
      bytes_ = std::min(bytes_ + packet, kLargest);
    }
  }
  /// A timeout: one packet at a time, and slow start up to half of the old window.
  void on_congestion(CongestionCause cause, std::uint32_t packet) {
    threshold_ = std::max(bytes_ / 2, packet);
    bytes_ = cause == CongestionCause::kTimeout ? packet : threshold_;
    credit_ = 0;
  }

 private:
  std::uint32_t bytes_ = kStart;
  std::uint32_t threshold_ = kLargest;  // slow start below
  std::uint32_t credit_ = 0;            // acknowledged since the window last grew
};

}  // namespace uroce::proto
