#include "worker/poll_policy.h"

#include <gtest/gtest.h>

namespace uroce::worker {
namespace {

TEST(PollPolicy, SpinsForAWhileWithACoreOfItsOwnThenSleeps) {
  PollPolicy policy({.idle_alone = 100});
  EXPECT_EQ(policy.idle(1000, false), IdleAction::kSpin);
  EXPECT_EQ(policy.idle(1099, false), IdleAction::kSpin);
  EXPECT_EQ(policy.idle(1100, false), IdleAction::kSleep);
  policy.worked(1100);
  EXPECT_EQ(policy.idle(1101, false), IdleAction::kSpin);
}

TEST(PollPolicy, SleepsAtOnceWithFewCores) {
  PollPolicy policy({.idle_alone = 100, .idle_shared = 0});
  EXPECT_EQ(policy.idle(1000, true), IdleAction::kSleep);
}

TEST(PollPolicy, WithFewCoresItSpinsOnlyWhileThatPaysOff) {
  PollPolicy policy({.idle_shared = 0});
  Nanos now = 1000;
  const auto sleep_shortly = [&] {
    EXPECT_EQ(policy.idle(now, true), IdleAction::kSleep);
    policy.slept(kMicrosecond);
    policy.worked(now);
  };
  for (int i = 0; i < 4; ++i) sleep_shortly();
  // After short sleeps it tries to spin, and continues as long as spins find work.
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(policy.idle(now, true), IdleAction::kSpin);
    EXPECT_EQ(policy.idle(now += 3 * kMicrosecond, true), IdleAction::kSpin);
    policy.worked(now);
  }
  // Spins that find nothing end that, and the next try comes later than the first.
  for (int i = 0; i < 9; ++i) {
    EXPECT_EQ(policy.idle(now, true), IdleAction::kSpin);
    EXPECT_EQ(policy.idle(now += 8 * kMicrosecond, true), IdleAction::kSleep);
    policy.slept(kMillisecond);
    policy.worked(now);
  }
  for (int i = 0; i < 8; ++i) sleep_shortly();
  EXPECT_EQ(policy.idle(now, true), IdleAction::kSpin);
}

TEST(PollPolicy, YieldsToAClientWithoutPostedReceivesUnlessThatCostsTooMuch) {
  PollPolicy policy({});
  EXPECT_FALSE(policy.should_yield_after_drop(1000, false));
  EXPECT_TRUE(policy.should_yield_after_drop(1000, true));
  policy.yielded(1000, 20 * kMillisecond);
  EXPECT_FALSE(policy.should_yield_after_drop(1000, true));
  EXPECT_TRUE(policy.should_yield_after_drop(kSecond, true));
}

TEST(PollPolicy, WithFewCoresItAlternatesWithAYieldingClientAndSleepsWhenThatStops) {
  PollPolicy policy({.idle_shared = 0});
  for (Nanos now = 0; now < kSecond; now += kMillisecond)
    EXPECT_EQ(policy.idle(now, true, true), IdleAction::kYield);
  EXPECT_EQ(policy.idle(kSecond, true, false), IdleAction::kSleep);
}

TEST(PollPolicy, LongYieldsTakeAtMostAnEighthOfTheTime) {
  PollPolicy policy({.idle_shared = 0});
  Nanos now = 0;
  const auto yield_to_a_spinner = [&] {
    now += 3 * kMillisecond;
    policy.yielded(now, 3 * kMillisecond);
  };
  // Rare long yields change nothing.
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(policy.idle(now, true, true), IdleAction::kYield);
    yield_to_a_spinner();
    now += 50 * kMillisecond;
  }
  Nanos long_yields = 0;
  const Nanos start = now;
  while (now - start < kSecond) {
    if (policy.idle(now, true, true) == IdleAction::kYield) {
      yield_to_a_spinner();
      long_yields += 3 * kMillisecond;
    } else {
      now += 10 * kMicrosecond;
    }
  }
  EXPECT_GT(long_yields, kSecond / 10);
  EXPECT_LT(long_yields, kSecond / 6);
}

TEST(PollPolicy, LongSleepsStartNoSpinning) {
  PollPolicy policy({.idle_shared = 0});
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(policy.idle(1000, true), IdleAction::kSleep);
    policy.slept(kMillisecond);
    policy.worked(1000);
  }
}

TEST(PollPolicy, AWakeUpWithoutWorkIsFollowedBySleepAtOnce) {
  PollPolicy policy({.idle_alone = 100});
  EXPECT_EQ(policy.idle(1000, false), IdleAction::kSpin);
  EXPECT_EQ(policy.idle(1100, false), IdleAction::kSleep);
  policy.slept(50);
  EXPECT_EQ(policy.idle(1150, false), IdleAction::kSleep);
  policy.worked(1150);
  EXPECT_EQ(policy.idle(1200, false), IdleAction::kSpin);
}

TEST(PollPolicy, SpinsBrieflyAfterAWakeUpAndLongerWhileThatPaysOff) {
  PollPolicy policy({.idle_alone = 200 * kMicrosecond});
  Nanos now = 0;
  const auto spins_for = [&] {
    const Nanos start = now;
    while (policy.idle(now, false) == IdleAction::kSpin) now += kMicrosecond;
    return now - start;
  };
  EXPECT_EQ(spins_for(), 200 * kMicrosecond);
  policy.slept(kMillisecond);
  policy.worked(now);
  EXPECT_EQ(spins_for(), 16 * kMicrosecond);
  policy.slept(kMillisecond);
  policy.worked(now);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(policy.idle(now, false), IdleAction::kSpin);
    policy.worked(now);
  }
  EXPECT_EQ(spins_for(), 64 * kMicrosecond);
}

// A program that sleeps, too, answers later than a spin lasts after a wake-up: it has to be woken first.
TEST(PollPolicy, SpinsLongerAfterSleepsThatALongerSpinHadSaved) {
  PollPolicy policy({.idle_alone = 200 * kMicrosecond});
  Nanos now = 0;
  const auto sleep_for = [&](Nanos time) {
    while (policy.idle(now, false) == IdleAction::kSpin) now += kMicrosecond;
    policy.slept(time);
    policy.worked(now += time);
  };
  sleep_for(kMillisecond);
  int sleeps = 0;
  for (int i = 0; i < 1000; ++i) {  // work comes 50 us after the last
    const Nanos next = now + 50 * kMicrosecond;
    while (now < next && policy.idle(now, false) == IdleAction::kSpin) now += kMicrosecond;
    if (now < next) policy.slept(next - now), ++sleeps;
    policy.worked(now = next);
  }
  EXPECT_LE(sleeps, 3);
}

/// Sleeps of a worker with few cores, in 1,000 steps of work that come `pause` after the last.
int sleeps_of(PollPolicy& policy, Nanos pause, bool events, Nanos late = 0) {
  Nanos now = kSecond;
  int sleeps = 0;
  for (int i = 0; i < 1000; ++i) {
    const Nanos next = now + pause;
    while (now < next && policy.idle(now, true) == IdleAction::kSpin) now += kMicrosecond;
    if (now < next) policy.slept(next - now), ++sleeps;
    now = next;
    if (late != 0) policy.idle(now, true), now += late;  // it spun, and another thread had the core
    policy.worked(now, events);
  }
  return sleeps;
}

TEST(PollPolicy, WithFewCoresItSpinsLongForProgramsThatWaitForEvents) {
  PollPolicy policy({});
  EXPECT_LE(sleeps_of(policy, 50 * kMicrosecond, true), 10);
  EXPECT_GE(sleeps_of(policy, 50 * kMicrosecond, false), 900) << "they poll from now on";
  EXPECT_LE(sleeps_of(policy, 50 * kMicrosecond, true), 10);
  EXPECT_GE(sleeps_of(policy, 500 * kMicrosecond, true), 1000);
}

TEST(PollPolicy, ASpinThatKeptAnotherThreadFromTheCoreHasFailed) {
  PollPolicy policy({});
  EXPECT_GE(sleeps_of(policy, 50 * kMicrosecond, true, 3 * kMillisecond), 900);
}

TEST(PollPolicy, BusyNeverSleeps) {
  PollPolicy policy({.busy = true, .idle_alone = 1, .idle_shared = 0});
  for (Nanos now = 0; now < 100 * kSecond; now += kSecond) {
    EXPECT_EQ(policy.idle(now, false), IdleAction::kSpin);
    EXPECT_EQ(policy.idle(now, true), IdleAction::kYield);
  }
}

TEST(PollPolicy, AWorkerThatFramesCannotWakeTakesLongerAndLongerNaps) {
  PollPolicy policy({.wakeable = false, .min_nap = 50, .max_nap = 400});
  EXPECT_EQ(policy.nap(kNever), 50u);
  Nanos last = 50;
  for (int i = 0; i < 100; ++i) {
    const Nanos nap = policy.nap(kNever);
    EXPECT_GE(nap, last);
    EXPECT_LE(nap, 400u);
    last = nap;
  }
  EXPECT_EQ(last, 400u);
  EXPECT_EQ(policy.nap(7), 7u);
  policy.worked(0);
  EXPECT_EQ(policy.nap(kNever), 50u);
}

TEST(PollPolicy, AWakeableWorkerSleepsUntilItsNextTimer) {
  PollPolicy policy({.wakeable = true});
  EXPECT_EQ(policy.nap(kNever), kNever);
  EXPECT_EQ(policy.nap(5 * kSecond), 5 * kSecond);
}

TEST(PollPolicy, CoresAreFewWhenPollersOutnumberThem) {
  EXPECT_TRUE(few_cores(2, 2, 1));
  EXPECT_TRUE(few_cores(1, 1, 1));
  EXPECT_FALSE(few_cores(2, 1, 1));
  EXPECT_FALSE(few_cores(64, 2, 2));
}

}  // namespace
}  // namespace uroce::worker
