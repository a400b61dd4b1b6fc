// When a worker that finds nothing to do goes on looking, hands its core over, or sleeps. Sans-IO.
//
// A worker with a core to itself spins for `idle_alone`, which hides the cost of sleeping from anybody who talks
// to it in that time. But who woke it may wait on the same core: so it begins with `kAfterWake`, and each spin in
// which work came doubles that. Where cores are fewer than pollers each moment of spinning is taken from the
// program it waits for. While a client says that it polls in vain and yields, the worker yields too: taking turns
// is the quickest. But a program that spins on its own memory (ib_write_lat) keeps the core for its whole time
// slice; only a thread that sleeps and is woken gets in before. So otherwise the worker sleeps as soon as it finds
// nothing, unless a few microseconds of spinning have paid off lately: a client that posts without a pause on the
// other core would otherwise pay a system call for each wake. Spins that fail more often than one in five end
// that, and the next try comes ever later.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/types.h"

namespace uroce::daemon {

enum class IdleAction : std::uint8_t { kSpin, kYield, kSleep };

struct PollPolicyConfig {
  bool busy = false;  ///< never sleep
  Nanos idle_alone = 200 * kMicrosecond;
  Nanos idle_shared = 0;  ///< at least; more while it pays off
  Nanos max_shared = 8 * kMicrosecond;
  bool wakeable = true;               ///< arriving frames wake a sleeper
  Nanos min_nap = 50 * kMicrosecond;  ///< timed sleeps of a worker that frames can't wake
  Nanos max_nap = kMillisecond;
};

class PollPolicy {
 public:
  explicit PollPolicy(const PollPolicyConfig& config)
      : config_(config), alone_(config.idle_alone), nap_(config.min_nap) {}

  void worked() {
    if (idle_since_ != kNever && !slept_) alone_ = std::min(alone_ * 2, config_.idle_alone);
    if (idle_since_ != kNever && !slept_ && spin_ != 0) {
      spin_ = std::min(spin_ * 2, config_.max_shared);
      score_ = std::min(score_ + 1, kMaxScore);
      if (score_ == kMaxScore) tries_after_ = kFirstTry;
    }
    idle_since_ = kNever;
    slept_ = false;
    nap_ = config_.min_nap;
  }

  /// After a step that found nothing. `few_cores`: pollers outnumber cores; `turns`: a client waits and yields.
  IdleAction idle(Nanos now, bool few_cores, bool turns = false) {
    if (config_.busy) return few_cores ? IdleAction::kYield : IdleAction::kSpin;
    if (few_cores && turns && lost(now) <= kMayLose) return IdleAction::kYield;
    if (idle_since_ == kNever) idle_since_ = now;
    const Nanos patience = few_cores ? std::max(config_.idle_shared, spin_) : alone_;
    if (!slept_ && now - idle_since_ < patience) return IdleAction::kSpin;
    if (spin_ != 0 && !slept_ && (score_ -= kFailure) < 0) {
      spin_ = 0;
      score_ = 0;
      tries_after_ = std::min(tries_after_ * 2, kLastTry);
      until_try_ = tries_after_;
    }
    return IdleAction::kSleep;
  }

  /// After a step that lost datagrams for want of a posted receive: whether the program shall run before more come.
  /// The port holds them back meanwhile.
  bool should_yield_after_drop(Nanos now, bool few_cores) const { return few_cores && lost(now) <= kMayLose; }

  /// After a yield of `duration`, at `now`. One that took long went to somebody who does not yield back: a few of
  /// these happen to anybody, but no more than every eighth moment is given away like that.
  void yielded(Nanos now, Nanos duration) {
    if (duration <= kCostlyYield) return;
    lost_ = lost(now) + duration;
    lost_at_ = now;
  }

  /// After a sleep of `duration`.
  void slept(Nanos duration) {
    slept_ = true;
    alone_ = std::min(config_.idle_alone, kAfterWake);
    if (spin_ != 0 || duration > kShortSleep) return;
    if (--until_try_ == 0) spin_ = kFirstSpin;
  }

  /// How long to sleep at most, `until_timer` from now at the latest.
  Nanos nap(Nanos until_timer) {
    if (config_.wakeable) return until_timer;
    const Nanos nap = nap_;
    nap_ = std::min(nap_ + nap_ / 8, config_.max_nap);
    return std::min(nap, until_timer);
  }

 private:
  static constexpr Nanos kShortSleep = 20 * kMicrosecond;
  static constexpr Nanos kAfterWake = 16 * kMicrosecond;
  static constexpr Nanos kCostlyYield = 25 * kMicrosecond;
  static constexpr Nanos kMayLose = 8 * kMillisecond;
  static constexpr int kMaxScore = 32, kFailure = 4;
  static constexpr Nanos kFirstSpin = 4 * kMicrosecond;
  static constexpr std::uint32_t kFirstTry = 4, kLastTry = 1024;  // short sleeps before spinning is tried

  Nanos lost(Nanos now) const {
    const Nanos regained = (now - lost_at_) / 8;
    return lost_ > regained ? lost_ - regained : 0;
  }

  PollPolicyConfig config_;
  Nanos alone_;  // how long it spins with a core to itself
  Nanos idle_since_ = kNever;
  bool slept_ = false;            // since it last worked
  Nanos lost_ = 0, lost_at_ = 0;  // in costly yields, at that time
  Nanos spin_ = 0;                // what is tried where cores are few; 0: nothing
  int score_ = 0;                 // of the spins so far
  std::uint32_t tries_after_ = kFirstTry, until_try_ = kFirstTry;
  Nanos nap_;
};

/// Whether those who poll outnumber the cores they may run on.
constexpr bool few_cores(std::uint32_t cores, std::uint32_t workers, std::uint32_t active_sessions) {
  return cores < workers + active_sessions;
}

}  // namespace uroce::daemon
