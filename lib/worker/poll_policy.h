// Decides what a worker does after a duty cycle without work: spin, yield its CPU, or sleep. Sans-IO.
//
// | cores vs. pollers | clients                   | the idle worker                                              |
// |-------------------|---------------------------|--------------------------------------------------------------|
// | enough            | any                       | spins for idle_alone, then sleeps; after a sleep of that     |
// |                   |                           | length it spins for kAfterWake, doubled by each spin that    |
// |                   |                           | finds work, and by each sleep which a longer spin had saved  |
// | too few           | yield between empty polls | yields: alternating is fastest; long yields may take an      |
// |                   |                           | eighth of the time                                           |
// | too few           | post without a pause      | spins for up to max_shared while most spins find work: saves |
// |                   |                           | the client the system call of a wake-up                      |
// | too few           | busy-wait on their memory | sleeps at once: only a woken sleeper gets the CPU before the |
// |                   |                           | client's time slice ends                                     |
// | too few           | wait for events, and a    | spins for up to max_for_sleepers while most spins find work: |
// |                   | core is left              | a program that sleeps takes no core until it was woken       |
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/types.h"

namespace uroce::worker {

enum class IdleAction : std::uint8_t { kSpin, kYield, kSleep };

struct PollPolicyConfig {
  bool busy = false;                      ///< never sleep
  Nanos idle_alone = 200 * kMicrosecond;  ///< longest spin with a core for each poller
  Nanos idle_shared = 0;                  ///< shortest spin with fewer cores than pollers
  Nanos max_shared = 8 * kMicrosecond;    ///< longest spin with fewer cores than pollers
  /// The same if the programs wait for events: to wake one takes long.
  Nanos max_for_sleepers = 128 * kMicrosecond;
  bool wakeable = true;               ///< arriving frames wake a sleeper
  Nanos min_nap = 50 * kMicrosecond;  ///< shortest and longest timed sleep of a worker that frames can't wake
  Nanos max_nap = kMillisecond;
};

class PollPolicy {
 public:
  explicit PollPolicy(const PollPolicyConfig& config)
      : config_(config), alone_(config.idle_alone), nap_(config.min_nap) {}

  /// After a step that found work. `woke_program`: it sent a completion event, and a core is left for
  /// who waited.
  void worked(Nanos now, bool woke_program = false) {
    steps_since_event_ = woke_program ? 0 : std::min(steps_since_event_ + 1, kFewSteps);
    const bool spun = idle_since_ != kNever && !slept_;
    if (spun) alone_ = std::min(alone_ * 2, config_.idle_alone);
    // Later than that, another thread has had the core in between, and spinning kept it waiting.
    if (spun && spin_ != 0 && now - idle_since_ <= spin_) {
      spin_ = std::min(spin_ * 2, longest_shared_spin());
      score_ = std::min(score_ + 1, kMaxScore);
      if (score_ == kMaxScore) tries_after_ = kFirstTry;
    } else if (spun && spin_ != 0) {
      spin_failed();
    }
    idle_since_ = kNever;
    slept_ = false;
    nap_ = config_.min_nap;
  }

  /// After a step that found nothing. `few_cores`: pollers outnumber cores; `turns`: a client yields between polls.
  IdleAction idle(Nanos now, bool few_cores, bool turns = false) {
    if (config_.busy) return few_cores ? IdleAction::kYield : IdleAction::kSpin;
    if (few_cores && turns && lost(now) <= kMayLose) return IdleAction::kYield;
    if (idle_since_ == kNever) idle_since_ = now;
    const Nanos longest_spin = few_cores ? std::max(config_.idle_shared, spin_) : alone_;
    if (!slept_ && now - idle_since_ < longest_spin) return IdleAction::kSpin;
    if (spin_ != 0 && !slept_) spin_failed();
    return IdleAction::kSleep;
  }

  /// After a step that dropped datagrams because no receive was posted: whether to yield so that the program can
  /// post some. The port queues further frames during that time.
  bool should_yield_after_drop(Nanos now, bool few_cores) const { return few_cores && lost(now) <= kMayLose; }

  /// After a yield of `duration`, at `now`. A long one went to a thread that does not yield back. A few of these
  /// are normal, but in total they may take an eighth of the time.
  void yielded(Nanos now, Nanos duration) {
    if (duration <= kCostlyYield) return;
    lost_ = lost(now) + duration;
    lost_at_ = now;
  }

  /// After a sleep of `duration`.
  void slept(Nanos duration) {
    slept_ = true;
    // A program that sleeps as well answers later than kAfterWake: it has to be woken first.
    alone_ = std::min(config_.idle_alone, duration < config_.idle_alone ? 2 * alone_ : kAfterWake);
    if (spin_ != 0 || duration > (programs_sleep() ? config_.max_for_sleepers : kShortSleep)) return;
    if (--until_try_ == 0) spin_ = programs_sleep() ? config_.max_for_sleepers : kFirstSpin;
  }

  /// The longest sleep, given the time until the next timer.
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
  static constexpr Nanos kMayLose = 8 * kMillisecond;  // to long yields, before yielding stops
  static constexpr int kMaxScore = 32, kFailure = 4;
  static constexpr Nanos kFirstSpin = 4 * kMicrosecond;
  static constexpr std::uint32_t kFirstTry = 4, kLastTry = 1024;  // short sleeps until spinning is tried again
  static constexpr std::uint32_t kFewSteps = 8;                   // an event and the acknowledges that follow it

  void spin_failed() {
    if ((score_ -= kFailure) >= 0) return;
    spin_ = 0;
    score_ = 0;
    tries_after_ = std::min(tries_after_ * 2, kLastTry);
    until_try_ = tries_after_;
  }
  bool programs_sleep() const { return steps_since_event_ < kFewSteps; }
  Nanos longest_shared_spin() const { return programs_sleep() ? config_.max_for_sleepers : config_.max_shared; }

  Nanos lost(Nanos now) const {
    const Nanos regained = (now - lost_at_) / 8;
    return lost_ > regained ? lost_ - regained : 0;
  }

  PollPolicyConfig config_;
  Nanos alone_;  // longest spin with a core for each poller
  Nanos idle_since_ = kNever;
  bool slept_ = false;            // since the last cycle with work
  Nanos lost_ = 0, lost_at_ = 0;  // time lost to costly yields, as of lost_at_
  Nanos spin_ = 0;                // longest spin with few cores; 0: don't spin
  int score_ = 0;                 // of recent spins: +1 when one found work, -kFailure when not
  std::uint32_t tries_after_ = kFirstTry, until_try_ = kFirstTry;
  Nanos nap_;
  std::uint32_t steps_since_event_ = kFewSteps;  // steps with work
};

/// Whether the threads that poll outnumber the cores that they may run on.
constexpr bool few_cores(std::uint32_t cores, std::uint32_t workers, std::uint32_t active_sessions) {
  return cores < workers + active_sessions;
}

}  // namespace uroce::worker
