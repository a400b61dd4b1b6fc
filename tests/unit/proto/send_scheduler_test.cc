#include "proto/state/send_scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace uroce::proto {
namespace {

constexpr std::uint32_t kQps = 1024;
constexpr std::uint32_t kTurnCost = 32 << 10;
constexpr std::uint32_t kNone = SendScheduler::kNone;

class SendSchedulerTest : public ::testing::Test {
 protected:
  void add(std::uint32_t qp, std::uint64_t session, std::uint64_t user, std::uint32_t weight = 1) {
    scheduler.attach(qp, session, user, weight);
    user_of[qp] = user;
    session_of[qp] = session;
    scheduler.activate(qp);
  }
  /// Turns of QPs that always have more to send.
  void run(int turns, std::uint32_t cost = kTurnCost) {
    for (int i = 0; i < turns; ++i) {
      const std::uint32_t qp = scheduler.take();
      ASSERT_NE(qp, SendScheduler::kNone);
      scheduler.activate(qp);
      scheduler.charge(qp, cost);
      by_user[user_of[qp]] += cost, by_session[session_of[qp]] += cost, ++turns_of[qp];
    }
  }

  SendScheduler scheduler{kQps, std::pmr::get_default_resource()};
  std::map<std::uint32_t, std::uint64_t> user_of, session_of;
  std::map<std::uint64_t, std::uint64_t> by_user, by_session;
  std::map<std::uint32_t, int> turns_of;
  std::set<std::uint32_t> listed;
};

TEST_F(SendSchedulerTest, QpsOfOneSessionTakeTurns) {
  for (std::uint32_t qp = 0; qp < 20; ++qp) add(qp, 1, 1000);
  for (int round = 0; round < 3; ++round) {
    for (std::uint32_t qp = 0; qp < 20; ++qp) {
      EXPECT_EQ(scheduler.take(), qp);
      scheduler.activate(qp);
      scheduler.charge(qp, kTurnCost);
    }
  }
}

TEST_F(SendSchedulerTest, UsersShareEquallyWhateverTheirNumberOfQps) {
  for (std::uint32_t qp = 0; qp < 256; ++qp) add(qp, 1 + qp % 4, 1000);
  add(300, 9, 1001);
  run(10'000);
  EXPECT_NEAR(static_cast<double>(by_user[1000]) / static_cast<double>(by_user[1001]), 1.0, 0.02);
}

TEST_F(SendSchedulerTest, UsersShareByWeight) {
  for (std::uint32_t qp = 0; qp < 8; ++qp) add(qp, 1 + qp % 4, 1000, 3);
  for (std::uint32_t qp = 8; qp < 64; ++qp) add(qp, 5, 1001);
  add(64, 6, 1002, SendScheduler::kMaxWeight);
  run(20'000);
  EXPECT_NEAR(static_cast<double>(by_user[1000]) / static_cast<double>(by_user[1001]), 3.0, 0.06);
  EXPECT_NEAR(static_cast<double>(by_user[1002]) / static_cast<double>(by_user[1001]), 100.0, 2.0);
}

TEST_F(SendSchedulerTest, SessionsOfAUserShareWhatTheUserGets) {
  for (std::uint32_t qp = 0; qp < 100; ++qp) add(qp, 1, 1000);
  add(100, 2, 1000);
  add(101, 3, 1001);
  run(12'000);
  EXPECT_NEAR(static_cast<double>(by_session[1]) / static_cast<double>(by_session[2]), 1.0, 0.02);
  EXPECT_NEAR(static_cast<double>(by_user[1000]) / static_cast<double>(by_user[1001]), 1.0, 0.02);
}

TEST_F(SendSchedulerTest, WhatATurnCostsCounts) {
  add(1, 1, 1000);
  add(2, 2, 1001);
  std::map<std::uint32_t, std::uint64_t> cost{{1, 0}, {2, 0}};
  for (int i = 0; i < 20'000; ++i) {
    const std::uint32_t qp = scheduler.take();
    const std::uint32_t turn = qp == 1 ? 64u << 10 : 500;
    scheduler.activate(qp);
    scheduler.charge(qp, turn);
    cost[qp] += turn;
  }
  EXPECT_NEAR(static_cast<double>(cost[1]) / static_cast<double>(cost[2]), 1.0, 0.05);
}

TEST_F(SendSchedulerTest, OneWithLittleToSendIsSoonServed) {
  for (std::uint32_t qp = 0; qp < 256; ++qp) add(qp, 1, 1000);
  run(100);
  scheduler.attach(500, 2, 1001);
  for (int i = 0; i < 100; ++i) {
    scheduler.activate(500);
    int before = 0;
    for (std::uint32_t qp = 0; (qp = scheduler.take()) != 500; ++before) {
      scheduler.activate(qp);
      scheduler.charge(qp, kTurnCost);
    }
    scheduler.charge(500, 500);
    // The choices made ahead while the other user was alone; after that at most a turn of that user.
    EXPECT_LE(before, i == 0 ? 12 : 1);
  }
}

TEST_F(SendSchedulerTest, OneWhoHadNothingToSendIsNext) {
  for (std::uint32_t qp = 0; qp < 4; ++qp) add(qp, 1 + qp, 1000 + qp % 2);
  run(50);
  scheduler.attach(500, 9, 1009);
  for (int i = 0; i < 100; ++i) {
    scheduler.activate(500);
    EXPECT_EQ(scheduler.take(), 500u) << i;
    scheduler.charge(500, 500);
    run(7);  // a round of the others
  }
}

// Users that go idle in turn, so that each comes first again. The list is searched as far as the one that sends
// little and never to the busy user after it.
TEST_F(SendSchedulerTest, ThoseWhoGoIdleInTurnLeaveOthersTheirShare) {
  constexpr std::uint32_t kOthers = 6, kBusy = kOthers;
  for (std::uint32_t qp = 0; qp < kOthers; ++qp) scheduler.attach(qp, 1 + qp, 1000 + qp);
  add(kBusy, 99, 1099);
  std::uint64_t busy = 0, others = 0;
  const auto take_until = [&](std::uint32_t qp, std::uint32_t cost) {
    for (std::uint32_t taken = kNone; taken != qp;) {
      taken = scheduler.take();
      scheduler.charge(taken, taken == kBusy ? SendScheduler::kQuantum / 2 : cost);
      (taken == kBusy ? busy : others) += taken == kBusy ? SendScheduler::kQuantum / 2 : cost;
      if (taken == kBusy) scheduler.activate(kBusy);
    }
  };
  for (std::uint32_t round = 0; round < 1000; ++round) {
    for (const std::uint32_t qp : {1u, 3u, 4u, 2u, 0u, 5u}) {
      scheduler.activate(qp);
      take_until(qp, qp == 1 ? 300 : SendScheduler::kQuantum - 1);
    }
  }
  EXPECT_GE(busy * kOthers, others * 9 / 10);
}

TEST_F(SendSchedulerTest, GoingIdleDoesNotSaveCredit) {
  add(1, 1, 1000);
  scheduler.attach(2, 2, 1001);
  std::uint64_t of_one = 0, of_two = 0;
  for (int i = 0; i < 10'000; ++i) {
    if (i % 3 == 0 && !listed.contains(2)) scheduler.activate(2), listed.insert(2);
    const std::uint32_t qp = scheduler.take();
    scheduler.charge(qp, kTurnCost);
    if (qp == 1) scheduler.activate(1), of_one += kTurnCost;
    if (qp == 2) listed.erase(2), of_two += kTurnCost;
  }
  EXPECT_LE(of_two, of_one);
}

TEST_F(SendSchedulerTest, AnyOrderOfCallsKeepsTheListWhole) {
  std::mt19937 random(7);
  std::set<std::uint32_t> attached, active;
  for (int i = 0; i < 200'000; ++i) {
    const std::uint32_t qp = random() % 64;
    switch (random() % 5) {
      case 0:
        if (attached.insert(qp).second) scheduler.attach(qp, 1 + random() % 5, random() % 3);
        break;
      case 1:
        if (!attached.contains(qp)) break;
        if (active.erase(qp) != 0) scheduler.remove(qp);
        scheduler.detach(qp);
        attached.erase(qp);
        break;
      case 2:
        if (attached.contains(qp) && active.insert(qp).second) {
          random() % 4 == 0 ? scheduler.activate_first(qp) : scheduler.activate(qp);
        }
        break;
      default: {
        const std::uint32_t next = scheduler.take();
        ASSERT_EQ(next == SendScheduler::kNone, active.empty());
        if (next == SendScheduler::kNone) break;
        ASSERT_EQ(active.erase(next), 1u);
        scheduler.charge(next, random() % 100'000);
      }
    }
    ASSERT_EQ(scheduler.any(), !active.empty());
  }
}

}  // namespace
}  // namespace uroce::proto
