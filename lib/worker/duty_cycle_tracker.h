// Measures the duty cycles of a thread between the readings of the clock that WorkerThread takes anyway: one
// comparison a cycle. The measure is wall time, so a cycle during which the thread lost its CPU counts as long.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "base/types.h"
#include "worker/counters.h"
#include "worker/latency.h"

namespace uroce::worker {

class DutyCycleTracker {
 public:
  static constexpr Nanos kStall = kMillisecond;  ///< a cycle that takes longer is a stall

  /// Of each worker that the thread steps.
  explicit DutyCycleTracker(std::vector<WorkerCounters*> counters, std::vector<WorkerLatency*> latencies = {})
      : counters_(std::move(counters)), latencies_(std::move(latencies)) {}

  /// WorkerLatency::on of a worker has changed.
  void choose_measured() {
    const auto on = [](const WorkerLatency* each) { return each->on; };
    measures_ = std::any_of(latencies_.begin(), latencies_.end(), on);
    record_above_ = 0;
  }

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
    for (WorkerLatency* const latency : latencies_) {
      if (latency->on && worked_) latency->duty_cycle.record(now - begun_);
    }
    for (WorkerCounters* const counters : counters_) {
      counters->longest_step = std::max(counters->longest_step, now - begun_);
      record_above_ = measures_ ? 0 : std::min(counters->longest_step, kStall);
      if (now - begun_ <= kStall) continue;
      ++counters->stalls;
      counters->last_stall = now;
    }
  }

  std::vector<WorkerCounters*> counters_;
  std::vector<WorkerLatency*> latencies_;
  Nanos begun_ = 0;
  bool worked_ = false, measures_ = false;
  Nanos record_above_ = 0;  // shorter cycles change nothing that record() writes
};

}  // namespace uroce::worker
