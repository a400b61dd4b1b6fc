#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "base/qpn_layout.h"
#include "cm_service/port_space.h"
#include "control/machine/poller_census.h"
#include "control/machine/port.h"
#include "control/session/id_pool.h"
#include "control/session/quotas.h"
#include "control/state/qpn.h"
#include "mapping/sigbus_guard.h"
#include "memory/table.h"
#include "net/flow_table.h"

namespace uroce::daemon {

using control::Charge;
using control::IdPool;
using control::Quotas;

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
  control::PollerCensus a, b;
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
  control::PollerCensus mine;
  ASSERT_TRUE(mine.open(path()).ok());
  mine.publish(1, 0);
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto* theirs = new control::PollerCensus;
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
    control::QpnAllocator allocator(worker, 99);
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
  control::QpnAllocator a(0, 1), b(0, 2);
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

std::uint64_t ports_handed_out() {
  cm_service::CmPorts ports(7);
  std::deque<control::CmId> ids;
  int error = 0;
  while (error == 0) error = ports.bind(ids.emplace_back());
  EXPECT_EQ(error, EADDRNOTAVAIL);
  return ids.size() - 1;
}

std::uint64_t flows_taken() {
  net::FlowTable table;
  std::uint64_t flows = 0;
  while (table.add(flows + 1, {})) ++flows;
  return flows;
}

std::uint64_t numbers_of(IdPool pool) {
  std::uint64_t numbers = 0;
  while (pool.allocate()) ++numbers;
  return numbers;
}

std::uint64_t open_files() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

/// A capacity beyond its table would let one user, whose half is the table, take all of it.
TEST(Quotas, NoCapacityIsLargerThanTheTableThatItLimits) {
  constexpr std::uint64_t kMemoryOnly = ~std::uint64_t{0};
  constexpr std::uint32_t kWorkers = 4;
  control::DaemonConfig config;
  config.max_qps = 100, config.max_cqs = 200, config.max_srqs = 300, config.max_mrs = 400;
  const std::map<std::string_view, std::uint64_t> tables = {
      {"sessions", kMemoryOnly},
      {"qps", std::uint64_t{config.max_qps} * kWorkers},  // a new one goes to the worker with the fewest
      {"cqs", numbers_of(IdPool(0, config.max_cqs))},
      {"srqs", numbers_of(IdPool(1, config.max_srqs))},
      {"mrs", memory::Table(config.max_mrs, 7).capacity()},
      {"pds", control::kMaxPd},
      {"ahs", numbers_of(IdPool(1, control::kMaxAh))},
      {"groups", control::kMaxGroups},
      {"attachments", control::kMaxAttachments},  // of one worker, whose QPs may have all of them
      {"flows", flows_taken()},
      {"cm_ids", kMemoryOnly},
      {"cm_ports", ports_handed_out()},
      {"cm_connections", control::kMaxCmConnections},
      {"descriptors", open_files() - 256},
      {"threads", 4096},  // TasksMax of config/uroced@.service
      {"mappings", mapping::SigbusGuard::kMaxRanges},
      {"queue_bytes", kMemoryOnly},
      {"registered_bytes", kMemoryOnly},
  };
  const control::Usage capacity = control::capacity_of(config, kWorkers);
  const Quotas quotas({}, capacity);
  for (const control::Resource& resource : control::kResources) {
    const auto table = tables.find(resource.name);
    ASSERT_NE(table, tables.end()) << resource.name << ": which table does it limit?";
    EXPECT_LE(capacity.*resource.amount, table->second) << resource.name;
    EXPECT_LE(quotas.limit(resource, false), table->second / 2) << resource.name;
  }
  EXPECT_EQ(capacity.cm_ports, ports_handed_out());
  EXPECT_EQ(capacity.flows, flows_taken());
}

TEST(Quotas, ARefusedChargeTakesNothing) {
  Quotas quotas({}, {.qps = 16, .cqs = 160});
  EXPECT_FALSE(quotas.charge(kAlice, {.qps = 9, .cqs = 1}));
  EXPECT_TRUE(quotas.users().empty());
  EXPECT_EQ(quotas.total().cqs, 0u);
}

}  // namespace
}  // namespace uroce::daemon
