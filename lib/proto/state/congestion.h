// How much of one QP may be in flight: what was sent and acknowledged, the controller's window, and the rule that
// one round trip is one reason to send less.
#pragma once

#include <cstdint>

#include "base/types.h"
#include "proto/state/congestion_window.h"
#include "proto/state/types.h"

namespace uroce::proto {

class Congestion {
 public:
  /// The state before the first packet. `packet`, here and below: cost of a full packet.
  void reset(std::uint32_t window, std::uint32_t packet) { window_.reset(window, packet); }

  /// Bytes, as cost_of() counts them.
  std::uint32_t window() const { return window_.bytes(); }
  std::uint32_t in_flight() const { return sent_ - acknowledged_; }

  void on_sent(std::uint32_t cost) { sent_ += cost; }
  void on_acknowledged(std::uint32_t cost) { acknowledged_ += cost; }
  /// What was sent will be sent again, and is not in flight until then.
  void take_back(std::uint32_t cost) { sent_ -= cost; }
  void take_back_all() { sent_ = acknowledged_; }

  /// After on_acknowledged(), once for each packet that acknowledges something.
  void grow(const AckSample& sample, std::uint32_t packet) { window_.on_ack(sample, packet); }

  /// [una, max_psn) is in flight. Once per round trip, which ends when all that was in flight at its beginning is
  /// acknowledged (RFC 3168, 6.1.2); a timeout counts in any case. Not if nothing is in flight: then a CNP is about
  /// responses. False: nothing has changed.
  bool shrink(CongestionCause cause, Psn una, Psn max_psn, std::uint32_t packet) {
    const std::uint32_t outstanding = psns_between(una, max_psn), left = psns_between(una, reduction_end_);
    const bool counts = outstanding != 0 && (left == 0 || left > outstanding);
    if (cause != CongestionCause::kTimeout && !counts) return false;
    reduction_end_ = max_psn;
    window_.on_congestion(cause, packet);
    return true;
  }

 private:
  CongestionWindow window_;
  std::uint32_t sent_ = 0, acknowledged_ = 0;  // running sums of costs
  Psn reduction_end_;                          // max_psn when the window last shrank
};

}  // namespace uroce::proto
