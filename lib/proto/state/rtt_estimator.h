// The round trip of one QP, smoothed as RFC 6298 (section 2) does. Where a packet went out again, nobody can say
// which of the two was acknowledged: it is measured from the first, so that one who asks too early gets more
// patient.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "base/types.h"

namespace uroce::proto {

class RttEstimator {
 public:
  /// `psn` leaves for the first time, and its acknowledge is asked for.
  void sent(Psn psn, Nanos now) {
    if (began_ != 0) return;
    psn_ = psn;
    began_ = stamp(now);
  }
  /// What is on its way was lost.
  void forget() { began_ = 0; }
  /// All before `una` is acknowledged.
  void acknowledged(Psn una, Nanos now) {
    if (began_ != 0 && una.after(psn_)) sample(stamp(now) - began_);
  }
  bool known() const { return mean_ != 0; }
  /// How long an acknowledge hardly ever takes, ns.
  Nanos retransmit_timeout() const { return Nanos{2u * mean_ + 4u * deviation_} * kUnit; }

 private:
  static constexpr Nanos kUnit = 1 << 16;

  /// In kUnit; never 0, which stands for none.
  static std::uint32_t stamp(Nanos now) { return static_cast<std::uint32_t>(now / kUnit) | 1; }

  void sample(std::uint32_t took) {
    began_ = 0;
    const auto now = static_cast<std::int32_t>(std::clamp<std::uint32_t>(took, 1, 0xffff));
    if (mean_ == 0) {
      mean_ = static_cast<std::uint16_t>(now);
      deviation_ = static_cast<std::uint16_t>(now / 2);
      return;
    }
    const std::int32_t error = now - mean_;
    deviation_ = static_cast<std::uint16_t>(deviation_ + (std::abs(error) - deviation_) / 4);
    mean_ = static_cast<std::uint16_t>(mean_ + error / 8);
  }

  std::uint16_t mean_ = 0, deviation_ = 0;  // in kUnit
  std::uint32_t began_ = 0;                 // 0: none is measured
  Psn psn_;
};

}  // namespace uroce::proto
