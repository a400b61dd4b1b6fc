#include "client/wall_clock.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace uroce::client {
namespace {

constexpr std::int64_t kDifference = 1'700'000'000'000'000'000;

/// Clocks that stand still but for the time that each reading is said to take.
struct Clocks {
  Nanos monotonic = 1'000'000;
  std::int64_t difference = kDifference;
  Nanos to_wall = 10, to_after = 10;  ///< from one reading to the next

  WallClock::Reading operator()() {
    WallClock::Reading now;
    now.before = monotonic;
    now.wall = difference + static_cast<std::int64_t>(monotonic += to_wall);
    now.after = monotonic += to_after;
    return now;
  }
};

TEST(WallClock, a_later_completion_is_not_earlier_however_long_the_readings_take) {
  WallClock clock;
  Clocks clocks;
  std::int64_t last = 0;
  for (Nanos i = 0; i < 100; ++i) {
    clocks.to_wall = 1 + i * 7 % 13;
    clocks.to_after = 1 + i * 5 % 11;
    const std::int64_t now = clock.at(500'000 + i, clocks);
    if (i != 0) {
      EXPECT_EQ(now, last + 1) << "completion " << i;
    }
    last = now;
  }
}

TEST(WallClock, a_completion_is_not_before_its_post_nor_far_after_it) {
  for (const Nanos to_wall : {1, 10, 40}) {
    WallClock clock;
    Clocks clocks{.to_wall = to_wall};
    const std::int64_t late = clock.at(500'000, clocks) - (500'000 + kDifference);
    EXPECT_GE(late, 0);
    EXPECT_LE(late, static_cast<std::int64_t>(to_wall) + 2);
  }
}

TEST(WallClock, the_narrowest_of_several_readings_counts) {
  WallClock clock;
  Clocks clocks;
  int reading = 0;
  const std::int64_t wall = clock.at(500'000, [&] {
    clocks.to_wall = ++reading == 1 ? 5'000'000 : 10;  // the thread lost its processor in the first one
    return clocks();
  });
  EXPECT_LE(wall, 500'000 + kDifference + 12);
}

TEST(WallClock, follows_a_wall_clock_that_is_set) {
  WallClock clock;
  Clocks clocks;
  const std::int64_t first = clock.at(500'000, clocks);
  for (const std::int64_t step : {3'000'000'000l, -5'000'000'000l, 1'000l}) {
    clocks.difference = kDifference + step;
    EXPECT_NEAR(static_cast<double>(clock.at(500'000, clocks) - first), static_cast<double>(step), 25);
  }
}

TEST(WallClock, reads_the_clocks_of_the_system) {
  WallClock clock;
  const WallClock::Reading now = WallClock::read();
  EXPECT_LE(now.before, now.after);
  EXPECT_GE(clock.at(now.after, WallClock::read), now.wall);
}

}  // namespace
}  // namespace uroce::client
