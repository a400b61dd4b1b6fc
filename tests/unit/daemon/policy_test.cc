#include <fcntl.h>
#include <gtest/gtest.h>
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

namespace uroce::daemon {
namespace {

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

constexpr uid_t kAlice = 1001, kBob = 1002, kRoot = 0;

TEST(Quotas, HoldEachUserToItsLimits) {
  Quotas quotas({.qps = 2, .queue_bytes = 1000}, {.qps = 100, .cqs = 8, .mrs = 64, .queue_bytes = 100'000});
  const Charge two = quotas.charge(kAlice, {.qps = 2, .queue_bytes = 900});
  EXPECT_TRUE(two);
  EXPECT_FALSE(quotas.charge(kAlice, {.qps = 1}));
  EXPECT_EQ(
      quotas.last_refusal(),
      "user 1001 has reached its limit of 2 qps; close programs, or raise limits.user_qps in the configuration");
  EXPECT_FALSE(quotas.charge(kAlice, {.queue_bytes = 101}));
  EXPECT_FALSE(quotas.charge(kAlice, {.queue_bytes = ~std::uint64_t{0}}));
  EXPECT_TRUE(quotas.charge(kBob, {.qps = 1}));
}

TEST(Quotas, AChargeEndsWithItsObject) {
  Quotas quotas({.qps = 2}, {.qps = 100, .cqs = 100, .queue_bytes = 100});
  {
    Charge one = quotas.charge(kAlice, {.qps = 1});
    Charge other = std::move(one);
    EXPECT_FALSE(one);  // NOLINT: it gave its amount away
    EXPECT_TRUE(other.grow({.qps = 1, .queue_bytes = 5}));
    EXPECT_FALSE(other.grow({.qps = 1}));
    other.shrink({.qps = 1, .queue_bytes = 5});
    EXPECT_EQ(quotas.users().at(kAlice).usage.qps, 1u);
    EXPECT_EQ(quotas.total().queue_bytes, 0u);
    one = quotas.charge(kAlice, {.qps = 1});
    EXPECT_TRUE(one);
    one = {};
    EXPECT_EQ(quotas.users().at(kAlice).usage.qps, 1u);
  }
  EXPECT_TRUE(quotas.users().empty());
}

TEST(Quotas, WithoutALimitAUserMayHaveHalf) {
  Quotas quotas({}, {.cqs = 160});
  Charge half = quotas.charge(kAlice, {.cqs = 80});
  EXPECT_TRUE(half);
  EXPECT_FALSE(quotas.charge(kAlice, {.cqs = 1}));
  // One sixteenth is kept for root.
  Charge rest = quotas.charge(kBob, {.cqs = 70});
  EXPECT_TRUE(rest);
  EXPECT_FALSE(quotas.charge(kBob, {.cqs = 1}));
  EXPECT_EQ(quotas.last_refusal(),
            "user 1002 is refused: all users together have reached the limit of 150 cqs; close programs");
  EXPECT_TRUE(quotas.charge(kRoot, {.cqs = 10}));
  EXPECT_FALSE(quotas.charge(kRoot, {.cqs = 11}));
}

TEST(Quotas, ARefusedChargeTakesNothing) {
  Quotas quotas({}, {.qps = 16, .cqs = 160});
  EXPECT_FALSE(quotas.charge(kAlice, {.qps = 9, .cqs = 1}));
  EXPECT_TRUE(quotas.users().empty());
  EXPECT_EQ(quotas.total().cqs, 0u);
}

}  // namespace
}  // namespace uroce::daemon
