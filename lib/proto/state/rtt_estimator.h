// The round trip time of one QP, smoothed as in RFC 6298, section 2. An acknowledge of a packet that was
// retransmitted is ambiguous; the time is measured from the first transmission, so that a QP which retransmits too
// early gets a longer timeout.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "base/types.h"

namespace uroce::proto {

class RttEstimator {
 public:
  /// `psn` is sent for the first time, with an acknowledge request.
  void sent(Psn psn, Nanos now) {
    if (began_ != 0) return;
    psn_ = psn;
    began_ = stamp(now);
  }
  /// The packets in flight were lost.
  void forget() { began_ = 0; }
  /// All packets before `una` are acknowledged.
  void acknowledged(Psn una, Nanos now) {
    if (began_ != 0 && una.after(psn_)) sample(units_until(now));
  }
  bool known() const { return mean_ != 0; }
  /// Smoothed; 0: unknown.
  Nanos mean() const { return Nanos{mean_} * kUnit; }
  /// Mean difference from mean(); 0: unknown.
  Nanos deviation() const { return Nanos{deviation_} * kUnit; }
  /// What a round trip hardly ever falls below, as a NAK arrives; 0: unknown.
  Nanos least(Nanos now) const {
    if (known()) return mean_ > deviation_ + 1u ? Nanos{mean_ - deviation_ - 1u} * kUnit : 0;
    return elapsed(now) / 4;
  }
  /// Time since the packet that is measured was sent, rounded down; 0: none is.
  Nanos elapsed(Nanos now) const {
    const std::uint32_t units = began_ == 0 ? 0 : units_until(now);
    return units > 2 ? Nanos{units - 2} * kUnit : 0;
  }
  bool measures(Psn psn) const { return began_ != 0 && psn_ == psn; }
  /// The time within which an acknowledge almost always arrives, ns.
  Nanos retransmit_timeout() const { return Nanos{2u * mean_ + 4u * deviation_} * kUnit; }

 private:
  static constexpr Nanos kUnit = 1 << 12;

  /// In kUnit; never 0, which means none.
  static std::uint32_t stamp(Nanos now) { return static_cast<std::uint32_t>(now / kUnit) | 1; }

  /// Since began_; 0 if `now` is earlier.
  std::uint32_t units_until(Nanos now) const {
    return static_cast<std::uint32_t>(std::max(0, static_cast<std::int32_t>(stamp(now) - began_)));
  }

  void sample(std::uint32_t took) {
    began_ = 0;
    const auto now = static_cast<std::int32_t>(std::clamp<std::uint32_t>(took, 1, 0xffff));
    if (mean_ == 0) {
      mean_ = static_cast<std::uint16_t>(now);
      deviation_ = static_cast<std::uint16_t>(now / 2);
      return;
    }
    const std::int32_t error = now - mean_;
    deviation_ = static_cast<std::uint16_t>(deviation_ + part(std::abs(error) - deviation_, 4));
    mean_ = static_cast<std::uint16_t>(mean_ + part(error, 8));
  }
  /// A fraction of the error, rounded away from 0, so that small errors count as well.
  static std::int32_t part(std::int32_t error, std::int32_t divisor) {
    return (error + (error < 0 ? 1 - divisor : divisor - 1)) / divisor;
  }

  std::uint16_t mean_ = 0, deviation_ = 0;  // in kUnit
  std::uint32_t began_ = 0;                 // 0: nothing is being measured
  Psn psn_;
};

}  // namespace uroce::proto
