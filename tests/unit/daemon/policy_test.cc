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
  EXPECT_EQ(b.total().before, 0u) << "who has no sessions needs no core";
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

}  // namespace
}  // namespace uroce::daemon
