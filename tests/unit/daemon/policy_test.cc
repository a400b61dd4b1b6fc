#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <vector>

#include "base/qpn_layout.h"
#include "control/poller_census.h"
#include "control/qpn.h"
#include "control/quotas.h"
#include "platform/log.h"
#include "platform/scheduling.h"
#include "worker/packet_ring.h"
#include "worker/poll_policy.h"
#include "worker/worker_loop.h"

namespace uroce::daemon {
namespace {

/// The thread's scheduling slice as the kernel reports it, in ns; 0 where it reports none.
std::uint64_t slice_of_this_thread() {
  std::uint64_t attr[6] = {};  // struct sched_attr; the runtime is its fourth word
  return ::syscall(SYS_sched_getattr, 0, attr, sizeof(attr), 0) == 0 ? attr[3] : 0;
}

TEST(SchedSlice, IsShortForWhoIsWokenAndAsTheProgramsForWhoTakesTurns) {
  const std::uint64_t usual = slice_of_this_thread();
  set_sched_slice(SchedSlice::kShort);
  const std::uint64_t shorter = slice_of_this_thread();
  set_sched_slice(SchedSlice::kUsual);
  EXPECT_EQ(slice_of_this_thread(), usual);
  // Linux before 6.12 reports none.
  EXPECT_EQ(shorter, usual != 0 ? 100 * kMicrosecond : 0);
}

TEST(MoveToCore, GoesThereAndMayStillGoElsewhere) {
  cpu_set_t before, after;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(before), &before), 0);
  const auto cores = static_cast<std::uint32_t>(CPU_COUNT(&before));
  constexpr std::uint32_t kRounds = 50;
  std::vector<std::uint32_t> visits(CPU_SETSIZE);
  for (std::uint32_t i = 0; i < kRounds * cores; ++i) {
    move_to_core(cores + i);
    ++visits[static_cast<std::size_t>(::sched_getcpu())];
  }
  // The scheduler may move it on at any time, but seldom at once.
  EXPECT_EQ(std::ranges::count_if(visits, [](std::uint32_t n) { return n > kRounds / 2; }), cores);
  ASSERT_EQ(::sched_getaffinity(0, sizeof(after), &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(PollPolicy, SpinsForItsPatienceOnACoreOfItsOwnThenSleeps) {
  PollPolicy policy({.idle_alone = 100});
  EXPECT_EQ(policy.idle(1000, false), IdleAction::kSpin);
  EXPECT_EQ(policy.idle(1099, false), IdleAction::kSpin);
  EXPECT_EQ(policy.idle(1100, false), IdleAction::kSleep);
  policy.worked();
  EXPECT_EQ(policy.idle(1101, false), IdleAction::kSpin);
}

TEST(PollPolicy, SleepsAtOnceWhereCoresAreFew) {
  PollPolicy policy({.idle_alone = 100, .idle_shared = 0});
  EXPECT_EQ(policy.idle(1000, true), IdleAction::kSleep);
}

TEST(PollPolicy, WhereCoresAreFewItSpinsOnlyWhileThatPaysOff) {
  PollPolicy policy({.idle_shared = 0});
  Nanos now = 1000;
  const auto sleep_shortly = [&] {
    EXPECT_EQ(policy.idle(now, true), IdleAction::kSleep);
    policy.slept(kMicrosecond);
    policy.worked();
  };
  for (int i = 0; i < 4; ++i) sleep_shortly();
  // Short sleeps: spinning is tried, and continues as long as work arrives while spinning.
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(policy.idle(now, true), IdleAction::kSpin);
    EXPECT_EQ(policy.idle(now += 3 * kMicrosecond, true), IdleAction::kSpin);
    policy.worked();
  }
  // No work arrived, repeatedly: it sleeps at once again, and the next try is later than the first.
  for (int i = 0; i < 9; ++i) {
    EXPECT_EQ(policy.idle(now, true), IdleAction::kSpin);
    EXPECT_EQ(policy.idle(now += 8 * kMicrosecond, true), IdleAction::kSleep);
    policy.slept(kMillisecond);
    policy.worked();
  }
  for (int i = 0; i < 8; ++i) sleep_shortly();
  EXPECT_EQ(policy.idle(now, true), IdleAction::kSpin);
}

TEST(PollPolicy, GivesWayToAClientWhoseReceivesAreMissingUnlessThatCostsTooMuch) {
  PollPolicy policy({});
  EXPECT_FALSE(policy.should_yield_after_drop(1000, false));
  EXPECT_TRUE(policy.should_yield_after_drop(1000, true));
  policy.yielded(1000, 20 * kMillisecond);
  EXPECT_FALSE(policy.should_yield_after_drop(1000, true));
  EXPECT_TRUE(policy.should_yield_after_drop(kSecond, true));
}

TEST(PollPolicy, WhereCoresAreFewItTakesTurnsWithAClientThatYieldsAndSleepsOnceThatStops) {
  PollPolicy policy({.idle_shared = 0});
  for (Nanos now = 0; now < kSecond; now += kMillisecond)
    EXPECT_EQ(policy.idle(now, true, true), IdleAction::kYield);
  EXPECT_EQ(policy.idle(kSecond, true, false), IdleAction::kSleep);
}

TEST(PollPolicy, NoMoreThanEveryEighthMomentIsGivenAwayInLongYields) {
  PollPolicy policy({.idle_shared = 0});
  Nanos now = 0;
  const auto yield_to_a_spinner = [&] {
    now += 3 * kMillisecond;
    policy.yielded(now, 3 * kMillisecond);
  };
  // An occasional outlier changes nothing.
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(policy.idle(now, true, true), IdleAction::kYield);
    yield_to_a_spinner();
    now += 50 * kMillisecond;
  }
  Nanos given_away = 0;
  const Nanos start = now;
  while (now - start < kSecond) {
    if (policy.idle(now, true, true) == IdleAction::kYield) {
      yield_to_a_spinner();
      given_away += 3 * kMillisecond;
    } else {
      now += 10 * kMicrosecond;
    }
  }
  EXPECT_GT(given_away, kSecond / 10);
  EXPECT_LT(given_away, kSecond / 6);
}

TEST(PollPolicy, LongSleepsAreNoReasonToSpin) {
  PollPolicy policy({.idle_shared = 0});
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(policy.idle(1000, true), IdleAction::kSleep);
    policy.slept(kMillisecond);
    policy.worked();
  }
}

TEST(PollPolicy, AWakeForNothingIsFollowedBySleepAtOnce) {
  PollPolicy policy({.idle_alone = 100});
  EXPECT_EQ(policy.idle(1000, false), IdleAction::kSpin);
  EXPECT_EQ(policy.idle(1100, false), IdleAction::kSleep);
  policy.slept(50);
  EXPECT_EQ(policy.idle(1150, false), IdleAction::kSleep);
  policy.worked();
  EXPECT_EQ(policy.idle(1200, false), IdleAction::kSpin);
}

TEST(PollPolicy, SpinsShortlyAfterAWakeAndLongerWhileThatPaysOff) {
  PollPolicy policy({.idle_alone = 200 * kMicrosecond});
  Nanos now = 0;
  const auto spins_for = [&] {
    const Nanos start = now;
    while (policy.idle(now, false) == IdleAction::kSpin) now += kMicrosecond;
    return now - start;
  };
  EXPECT_EQ(spins_for(), 200 * kMicrosecond);
  policy.slept(kMillisecond);
  policy.worked();
  EXPECT_EQ(spins_for(), 16 * kMicrosecond);
  policy.slept(kMillisecond);
  policy.worked();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(policy.idle(now, false), IdleAction::kSpin);
    policy.worked();
  }
  EXPECT_EQ(spins_for(), 64 * kMicrosecond);
}

TEST(PollPolicy, BusyNeverSleeps) {
  PollPolicy policy({.busy = true, .idle_alone = 1, .idle_shared = 0});
  for (Nanos now = 0; now < 100 * kSecond; now += kSecond) {
    EXPECT_EQ(policy.idle(now, false), IdleAction::kSpin);
    EXPECT_EQ(policy.idle(now, true), IdleAction::kYield);
  }
}

TEST(PollPolicy, AWorkerThatFramesCannotWakeNapsEverLongerUntilThereIsWork) {
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
  policy.worked();
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

class PresenceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/uroce-census-XXXXXX";
    dir_ = ::mkdtemp(name);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string path() const { return dir_ + "/presence"; }
  std::string dir_;
};

TEST_F(PresenceTest, AddsUpAllLivingDaemons) {
  PollerCensus a, b;
  ASSERT_TRUE(a.open(path()).ok());
  ASSERT_TRUE(b.open(path()).ok());
  a.publish(1, 2);
  b.publish(3, 4);
  EXPECT_EQ(a.total().daemons, 2u);
  EXPECT_EQ(b.total().workers, 4u);
  EXPECT_EQ(a.total().sessions, 6u);
  EXPECT_EQ(a.total().before, 0u);
  EXPECT_EQ(b.total().before, 1u);
  a.publish(1, 0);
  EXPECT_EQ(b.total().before, 0u) << "a daemon without sessions needs no core";
}

TEST_F(PresenceTest, ForgetsADaemonThatWasKilled) {
  PollerCensus mine;
  ASSERT_TRUE(mine.open(path()).ok());
  mine.publish(1, 0);
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto* theirs = new PollerCensus;
    const bool ok = theirs->open(path()).ok();
    theirs->publish(7, 7);
    const char byte = ok ? 'y' : 'n';
    if (::write(ready[1], &byte, 1) != 1) ::_exit(1);
    ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'y');
  EXPECT_EQ(mine.total().workers, 8u);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(mine.total().workers, 1u);
  EXPECT_EQ(mine.total().daemons, 1u);
}

TEST(Qpn, NumbersAreUniqueCarryTheWorkerAndSpareTheReserved) {
  for (const std::uint32_t worker : {0u, 1u, 15u}) {
    QpnAllocator allocator(worker, 99);
    std::vector<bool> seen(1u << 24);
    std::size_t count = 0;
    while (const auto qpn = allocator.allocate()) {
      ASSERT_FALSE(seen[qpn->value]);
      seen[qpn->value] = true;
      ++count;
      ASSERT_EQ(worker_of(*qpn), worker);
      ASSERT_GE(qpn->value, 2u);
      ASSERT_NE(qpn->value, 0xffffffu);
    }
    EXPECT_GE(count, (1u << 20) - 2);
  }
}

TEST(Qpn, AFreedNumberDoesNotComeBackSoonAndSeedsDiffer) {
  QpnAllocator a(0, 1), b(0, 2);
  const Qpn first = *a.allocate();
  a.release(first);
  std::set<std::uint32_t> of_a, of_b;
  for (int i = 0; i < 10'000; ++i) {
    of_a.insert(a.allocate()->value);
    of_b.insert(b.allocate()->value);
  }
  EXPECT_FALSE(of_a.contains(first.value));
  std::vector<std::uint32_t> common;
  std::set_intersection(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(), std::back_inserter(common));
  EXPECT_LT(common.size(), 500u);
}

TEST(Quotas, HoldEachUserToItsLimits) {
  Quotas accounts({.qps = 2, .cqs = 1, .mrs = 0, .bytes = 1000});
  EXPECT_EQ(accounts.charge(1, {.qps = 2, .bytes = 900}), nullptr);
  EXPECT_STREQ(accounts.charge(1, {.qps = 1}), "QPs");
  EXPECT_STREQ(accounts.charge(1, {.bytes = 101}), "bytes");
  EXPECT_EQ(accounts.charge(2, {.qps = 1}), nullptr);
  EXPECT_EQ(accounts.charge(1, {.mrs = 1'000'000}), nullptr);
  accounts.refund(1, {.qps = 1});
  EXPECT_EQ(accounts.charge(1, {.qps = 1}), nullptr);
  EXPECT_STREQ(accounts.charge(3, {.bytes = ~std::uint64_t{0}}), "bytes");
}

TEST(ErrorLog, CountsRepetitionsInsteadOfKeepingThem) {
  ErrorLog errors;
  EXPECT_TRUE(errors.record("a", 1));
  EXPECT_FALSE(errors.record("a", 5));
  EXPECT_TRUE(errors.record("b", 6));
  ASSERT_EQ(errors.entries().size(), 2u);
  EXPECT_EQ(errors.entries()[0].count, 2u);
  EXPECT_EQ(errors.entries()[0].first_ns, 1u);
  EXPECT_EQ(errors.entries()[0].last_ns, 5u);
  for (int i = 0; i < 1000; ++i) errors.record("text " + std::to_string(i), 7);
  EXPECT_EQ(errors.entries().size(), ErrorLog::kMaxDistinct);
}

TEST(PacketRing, KeepsOrderAndLosesWhatDoesNotFit) {
  PacketRing ring(64);
  EXPECT_TRUE(ring.front().empty());
  std::byte frame[65] = {};
  EXPECT_FALSE(ring.push(frame));
  for (std::uint32_t i = 0; i < PacketRing::kSlots; ++i) {
    frame[0] = static_cast<std::byte>(i);
    ASSERT_TRUE(ring.push({frame, 60}));
  }
  EXPECT_FALSE(ring.push({frame, 60}));
  for (std::uint32_t i = 0; i < PacketRing::kSlots; ++i) {
    ASSERT_EQ(ring.front().size(), 60u);
    EXPECT_EQ(ring.front()[0], static_cast<std::byte>(i));
    ring.pop();
  }
  EXPECT_TRUE(ring.empty());
}

}  // namespace
}  // namespace uroce::daemon
