// How long the clients of one user may keep threads of the daemon waiting for their memory or files: a token bucket
// of time (a burst, refilled slowly), the thread that closes their descriptors, and their share of the control
// thread. Any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/types.h"
#include "mapping/closer.h"

namespace uroce::mapping {

class StallBudget {
 public:
  static constexpr Nanos kBurst = 20 * kMillisecond;
  static constexpr Nanos kRefillDivisor = 50;  ///< the budget refills at 1/kRefillDivisor of real time
  static constexpr std::uint32_t kMaxStuck = 16;
  static constexpr Nanos kControlShare = 8;

  /// Takes `span` from the budget. False: the budget does not cover it.
  bool grant(Nanos span, Nanos now) {
    Nanos paid_at = paid_at_.load(std::memory_order_relaxed);
    for (;;) {
      const Nanos next = (paid_at > now ? paid_at : now) + span * kRefillDivisor;
      if (next > now + kBurst * kRefillDivisor) return false;
      if (paid_at_.compare_exchange_weak(paid_at, next, std::memory_order_relaxed)) return true;
    }
  }
  /// Takes `span` in any case: it has passed. False: the budget did not cover it, and is in debt.
  bool charge(Nanos span, Nanos now) {
    Nanos paid_at = paid_at_.load(std::memory_order_relaxed);
    for (;;) {
      const Nanos next = (paid_at > now ? paid_at : now) + span * kRefillDivisor;
      if (!paid_at_.compare_exchange_weak(paid_at, next, std::memory_order_relaxed)) continue;
      return next <= now + kBurst * kRefillDivisor;
    }
  }
  bool in_debt(Nanos now) const { return paid_at_.load(std::memory_order_relaxed) > now + kBurst * kRefillDivisor; }
  bool is_full(Nanos now) const { return paid_at_.load(std::memory_order_relaxed) <= now && stuck.load() == 0; }

  Closer& closer() { return closer_; }

  /// The control thread has worked `span` for this user.
  void charge_control(Nanos span, Nanos now) {
    control_paid_at_ = (control_paid_at_ > now ? control_paid_at_ : now) + span * kControlShare;
  }
  /// Whether it works more than 1/kControlShare of its time for this user, after a burst.
  bool over_control_share(Nanos now) const { return control_paid_at_ > now + kBurst * kControlShare; }

  /// Threads that are still blocked on this user's memory after their callers gave up.
  std::atomic<std::uint32_t> stuck{0};

 private:
  std::atomic<Nanos> paid_at_{0};  ///< when the budget will be full again
  Closer closer_;
  Nanos control_paid_at_ = 0;  // the control thread only
};

}  // namespace uroce::mapping
