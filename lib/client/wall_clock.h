// The times of completions, which are those of CLOCK_MONOTONIC, as CLOCK_REALTIME.
//
// Both clocks run at the same rate: their difference changes only when the wall clock is set. Two readings, one
// after the other, tell it to within the time between them. One difference is kept while readings agree with it:
// with a new one for each completion, a later completion could get an earlier time. It is rounded up, so that no
// completion is earlier than the post that caused it.
#pragma once

#include <cstdint>
#include <ctime>
#include <mutex>

#include "base/types.h"
#include "platform/clock.h"

namespace uroce::client {

/// Thread-safe.
class WallClock {
 public:
  /// The wall clock, read between two readings of the monotonic clock.
  struct Reading {
    Nanos before = 0;
    std::int64_t wall = 0;
    Nanos after = 0;
  };
  static Reading read() {
    Reading now;
    now.before = monotonic_now();
    timespec wall{};
    ::clock_gettime(CLOCK_REALTIME, &wall);
    now.wall = std::int64_t{wall.tv_sec} * static_cast<std::int64_t>(kSecond) + wall.tv_nsec;
    now.after = monotonic_now();
    return now;
  }

  /// The wall time of a monotonic one. `read` returns a Reading.
  template <class Read>
  std::int64_t at(Nanos time, Read&& read) {
    const std::lock_guard lock(mutex_);
    const Range now = range_of(read());
    if (!known_ || now.least > difference_.most || now.most < difference_.least) {
      difference_ = now;
      for (int i = 1; i < kReadings; ++i) difference_ = narrower(difference_, range_of(read()));
      known_ = true;
    }
    return static_cast<std::int64_t>(time) + difference_.most;
  }

 private:
  static constexpr int kReadings = 8;
  static constexpr std::int64_t kRounding = 2;  ///< each clock shows whole nanoseconds

  struct Range {
    std::int64_t least, most;
  };
  static Range range_of(const Reading& now) {
    return {now.wall - static_cast<std::int64_t>(now.after) - kRounding,
            now.wall - static_cast<std::int64_t>(now.before) + kRounding};
  }
  static Range narrower(const Range& a, const Range& b) { return b.most - b.least < a.most - a.least ? b : a; }

  std::mutex mutex_;
  bool known_ = false;
  Range difference_{};  ///< of the clocks: wall minus monotonic
};

}  // namespace uroce::client
