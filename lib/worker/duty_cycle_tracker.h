// Measures the duty cycles of a thread between the readings of the clock that WorkerThread takes anyway: one
// comparison a cycle. The measure is wall time, so a cycle during which the thread lost its CPU counts as long.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "base/types.h"
#include "worker/counters.h"

namespace uroce::daemon {

class DutyCycleTracker {
 public:
  static constexpr Nanos kStall = kMillisecond;  ///< a cycle that takes longer is a stall

  /// `counters`: of each worker that the thread steps.
  explicit DutyCycleTracker(std::vector<WorkerCounters*> counters) : counters_(std::move(counters)) {}

  /// A cycle begins at `now`; the one before, if resume() was not called since, ends.
  void begin(Nanos now) {
    if (now - begun_ > record_above_) [[unlikely]]
      record(now);
    if (std::exchange(worked_, false)) {
      for (WorkerCounters* const counters : counters_) counters->busy += now - begun_;
    }
    begun_ = now;
  }
  /// The cycle that has begun found work.
  void worked() { worked_ = true; }
  /// The worker yielded or slept until `now`: that time belongs to no cycle. Call it before the first begin(), too.
  void resume(Nanos now) { begun_ = now, worked_ = false; }

 private:
  void record(Nanos now) {
    for (WorkerCounters* const counters : counters_) {
      counters->longest_step = std::max(counters->longest_step, now - begun_);
      record_above_ = std::min(counters->longest_step, kStall);
      if (now - begun_ <= kStall) continue;
      ++counters->stalls;
      counters->last_stall = now;
    }
  }

  std::vector<WorkerCounters*> counters_;
  Nanos begun_ = 0;
  bool worked_ = false;
  Nanos record_above_ = 0;  // shorter cycles change no counter
};

}  // namespace uroce::daemon
