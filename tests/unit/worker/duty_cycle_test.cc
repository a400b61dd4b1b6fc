#include "worker/duty_cycle_tracker.h"

#include <gtest/gtest.h>

namespace uroce::worker {
namespace {

TEST(DutyCycleTracker, KeepsTheLongestStepAndCountsStalls) {
  WorkerCounters counters;
  DutyCycleTracker tracker({&counters});
  Nanos now = kSecond;
  tracker.resume(now);
  const auto step = [&](Nanos duration) { tracker.begin(now += duration); };
  tracker.begin(now);
  step(3 * kMicrosecond);
  step(2 * kMicrosecond);
  EXPECT_EQ(counters.longest_step, 3 * kMicrosecond);
  EXPECT_EQ(counters.stalls, 0u);
  step(DutyCycleTracker::kStall);
  EXPECT_EQ(counters.stalls, 0u);
  step(5 * kMillisecond);
  const Nanos stalled = now;
  step(2 * kMillisecond);
  step(kMicrosecond);
  EXPECT_EQ(counters.longest_step, 5 * kMillisecond);
  EXPECT_EQ(counters.stalls, 2u);
  EXPECT_EQ(counters.last_stall, stalled + 2 * kMillisecond);
}

TEST(DutyCycleTracker, SleepBelongsToNoStep) {
  WorkerCounters counters;
  DutyCycleTracker tracker({&counters});
  tracker.resume(kSecond);
  tracker.begin(kSecond);
  tracker.resume(3 * kSecond);
  tracker.begin(3 * kSecond + 40);
  EXPECT_EQ(counters.longest_step, 40u);
  EXPECT_EQ(counters.stalls, 0u);
}

TEST(DutyCycleTracker, MeasuresCyclesThatFoundWorkWhileThatIsOn) {
  WorkerCounters counters;
  WorkerLatency first, second;
  DutyCycleTracker tracker({&counters}, {&first, &second});
  Nanos now = kSecond;
  const auto cycle = [&](Nanos duration, bool worked) {
    if (worked) tracker.worked();
    tracker.begin(now += duration);
  };
  tracker.resume(now);
  tracker.begin(now);
  cycle(500, true);
  cycle(20, true);
  EXPECT_EQ(first.duty_cycle.count(), 0u) << "off";
  second.on = true;
  tracker.choose_measured();
  cycle(100, true);
  cycle(30, false);
  cycle(200, true);
  EXPECT_EQ(second.duty_cycle.count(), 2u);
  EXPECT_EQ(second.duty_cycle.sum(), 300u);
  tracker.resume(now += kSecond);  // slept
  cycle(7, true);
  EXPECT_EQ(second.duty_cycle.sum(), 307u);
  second.on = false;
  tracker.choose_measured();
  cycle(100, true);
  cycle(100, true);
  EXPECT_EQ(second.duty_cycle.count(), 3u);
  EXPECT_EQ(first.duty_cycle.count(), 0u);
  EXPECT_EQ(counters.longest_step, 500u);
}

TEST(DutyCycleTracker, BusyIsTheTimeOfCyclesThatFoundWorkForEachWorkerOfTheThread) {
  WorkerCounters first, second;
  DutyCycleTracker tracker({&first, &second});
  tracker.resume(kSecond);
  tracker.begin(kSecond);
  tracker.begin(kSecond + 10);  // found nothing
  tracker.worked();
  tracker.begin(kSecond + 40);
  tracker.worked();
  tracker.begin(kSecond + 45);
  tracker.worked();
  tracker.resume(2 * kSecond);  // slept
  tracker.begin(2 * kSecond + 7);
  EXPECT_EQ(first.busy, 35u);
  EXPECT_EQ(second.busy, 35u);
}

}  // namespace
}  // namespace uroce::worker
