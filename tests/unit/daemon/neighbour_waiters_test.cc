// Waiting for neighbours: each waiter is completed once, by the outcome or by its deadline, also through the
// link worker's event.
#include "control/session/neighbour_waiters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "test_daemon.h"

namespace uroce::daemon::testing {

using control::Neighbour;
using control::NeighbourKey;
using control::NeighbourWaiters;

namespace {

using Resolution = net::Resolution;
using Results = std::map<NeighbourKey, Neighbour>;

TEST(NeighbourWaiters, AreCompletedOnceByTheOutcomeOrTheDeadline) {
  NeighbourWaiters waiters;
  const NeighbourKey one{ipv4(2), 0}, other{ipv4(2), 5};
  std::vector<Resolution> outcomes;
  const auto keep = [&](const Neighbour& found) { outcomes.push_back(found.resolution); };
  waiters.add(one, 100, keep);
  waiters.add(one, 300, keep);
  waiters.add(other, 200, keep);
  EXPECT_EQ(waiters.keys(), (std::vector{one, other}));
  EXPECT_EQ(waiters.next_deadline(), 100u);
  waiters.complete(Results{{one, {Resolution::kPending, {}}}, {other, {Resolution::kPending, {}}}}, 99);
  EXPECT_TRUE(outcomes.empty());
  waiters.complete(Results{{one, {Resolution::kPending, {}}}, {other, {Resolution::kFailed, {}}}}, 100);
  EXPECT_EQ(outcomes, (std::vector{Resolution::kPending, Resolution::kFailed}));
  waiters.complete(Results{{one, {Resolution::kResolved, {}}}}, 150);
  EXPECT_EQ(outcomes.size(), 3u);
  EXPECT_EQ(outcomes.back(), Resolution::kResolved);
  EXPECT_TRUE(waiters.empty());
  EXPECT_EQ(waiters.next_deadline(), kNever);
}

TEST(NeighbourWaiters, ACompletionMayCancelAndAddOthers) {
  NeighbourWaiters waiters;
  const NeighbourKey key{ipv4(2), 0};
  NeighbourWaiters::Id second = 0;
  int first_done = 0, second_done = 0, third_done = 0;
  waiters.add(key, 100, [&](const Neighbour&) {
    ++first_done;
    waiters.cancel(second);
    waiters.add(key, 100, [&](const Neighbour&) { ++third_done; });
  });
  second = waiters.add(key, 100, [&](const Neighbour&) { ++second_done; });
  waiters.complete(Results{{key, {Resolution::kResolved, {}}}}, 1);
  EXPECT_EQ(first_done, 1);
  EXPECT_EQ(second_done, 0);
  EXPECT_EQ(third_done, 0) << "a waiter added by a completion waits for the next one";
  waiters.complete(Results{{key, {Resolution::kResolved, {}}}}, 2);
  EXPECT_EQ(third_done, 1);
}

TEST(NeighbourWaiters, ManyAreCompletedInSeveralCalls) {
  constexpr std::size_t kMost = NeighbourWaiters::kMost;
  NeighbourWaiters waiters;
  const NeighbourKey answers{ipv4(2), 0}, silent{ipv4(3), 0};
  std::vector<std::size_t> done;
  for (std::size_t i = 0; i < kMost + 1; ++i) {
    waiters.add(silent, 100, [&done, i](const Neighbour&) { done.push_back(i); });
    waiters.add(answers, 200, [&done, i](const Neighbour&) { done.push_back(i); });
  }
  const Results results{{answers, {Resolution::kResolved, {}}}, {silent, {Resolution::kPending, {}}}};
  for (std::size_t left = 2 * kMost + 2; left > kMost; left -= kMost) {
    done.clear();
    EXPECT_FALSE(waiters.complete(results, 100));
    EXPECT_EQ(done.size(), kMost);
    EXPECT_TRUE(std::ranges::is_sorted(done));
  }
  done.clear();
  EXPECT_TRUE(waiters.complete(results, 100));
  EXPECT_EQ(done.size(), 2u);
  EXPECT_TRUE(waiters.empty());
  EXPECT_TRUE(waiters.complete(results, 100));
}

TEST(LinkControlNeighbours, TheRestOfManyWaitersIsDueAtOnce) {
  TestDaemon daemon;
  control::LinkControl& link = daemon.conductor->link();
  const NeighbourKey key{ipv4(77), 0};
  ASSERT_EQ(link.resolve(key).resolution, Resolution::kPending);
  const Nanos deadline = monotonic_now() + 60 * kSecond;
  std::size_t done = 0;
  for (std::size_t i = 0; i < NeighbourWaiters::kMost + 1; ++i) {
    link.wait_for(key, deadline, [&](const Neighbour&) { ++done; });
  }
  link.check_neighbours(deadline);
  EXPECT_EQ(done, NeighbourWaiters::kMost);
  EXPECT_EQ(link.next_neighbour_deadline(), 0u);
  link.check_neighbours(monotonic_now());
  EXPECT_EQ(done, NeighbourWaiters::kMost) << "its deadline has not come";
  EXPECT_EQ(link.next_neighbour_deadline(), deadline);
  link.check_neighbours(deadline);
  EXPECT_EQ(done, NeighbourWaiters::kMost + 1);
  EXPECT_EQ(link.next_neighbour_deadline(), kNever);
}

TEST(LinkControlNeighbours, AWaiterEndsWhenTheLinkGivesUp) {
  TestDaemon daemon;
  control::LinkControl& link = daemon.conductor->link();
  const NeighbourKey key{ipv4(77), 0};
  ASSERT_EQ(link.resolve(key).resolution, Resolution::kPending);
  std::vector<Resolution> outcomes;
  link.wait_for(key, monotonic_now() + 60 * kSecond,
                [&](const Neighbour& found) { outcomes.push_back(found.resolution); });
  daemon.settle();
  link.check_neighbours(monotonic_now());
  EXPECT_TRUE(outcomes.empty());
  // Three requests, a second apart (RFC 4861, 10: MAX_MULTICAST_SOLICIT, RETRANS_TIMER).
  const Nanos now = monotonic_now();
  for (int second = 1; second <= 3; ++second) daemon.loops[0]->step(now + second * kSecond);
  link.check_neighbours(monotonic_now());
  EXPECT_EQ(outcomes, std::vector{Resolution::kFailed});
}

}  // namespace
}  // namespace uroce::daemon::testing
