// A session with many objects is closed in slices, between which the control thread serves others.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "control/commands/command.h"
#include "test_client.h"
#include "test_daemon.h"

namespace uroce::daemon::testing {
namespace {

constexpr uid_t kUser = 4711, kOther = 4712;

std::size_t objects_of(const control::Session& s) {
  return s.flows.size() + s.rss.size() + s.qps.size() + s.srqs.size() + s.cqs.size() + s.ahs.size() + s.mws.size() +
         s.mrs.size() + s.counters.size() + s.channels.size() + s.xrcds.size() + s.dms.size() + s.pds.size();
}

class TeardownTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kMany = 130;  // more than two slices

  void fill(TestClient& client) {
    client.hello();
    const std::uint32_t pd = client.alloc_pd();
    uroce_create_ah_request ah{};
    ah.pd = pd;
    ah.av.is_global = 1;
    ah.av.port_num = 1;
    std::memcpy(ah.av.dgid, ipv4(1).bytes.data(), 16);
    const uroce_create_srq_request srq{.pd = pd, .max_wr = 4, .max_sge = 1};
    for (std::size_t i = 0; i < kMany; ++i) {
      std::byte* data = nullptr;
      const std::uint32_t cq = client.create_cq(4).made.handle;
      ASSERT_NE(client.create_qp(TestClient::qp_request(pd, cq)).made.handle, 0u);
      ASSERT_EQ(client.reg_mr(pd, 0x10000, 4096, kReadWrite, data).status, 0);
      ASSERT_EQ(client.send(UROCE_CMD_ALLOC_MW, uroce_alloc_mw_request{pd, 1}).status, 0);
      ASSERT_EQ(client.send(UROCE_CMD_CREATE_AH, ah).status, 0);
      const control::Reply made = client.send(UROCE_CMD_CREATE_SRQ, srq);
      ASSERT_EQ(made.status, 0);
      client.map(TestClient::value<uroce_create_srq_response>(made).chunks, made);
      ASSERT_EQ(client.send(UROCE_CMD_CREATE_CHANNEL, std::span<const std::byte>{}).status, 0);
      ASSERT_NE(client.alloc_pd(), 0u);
    }
  }
  /// The smallest slice. False: more is left.
  bool release_some(TestClient& client) {
    return control::commands::release_some(conductor.state(), conductor.events(), conductor.link(),
                                           client.session(), 0);
  }
  void expect_nothing_left() {
    EXPECT_EQ(daemon.memory.size(), 0u);
    EXPECT_EQ(conductor.events().qps(), 0u);
    EXPECT_EQ(conductor.events().cqs(), 0u);
    EXPECT_EQ(conductor.events().srqs(), 0u);
    EXPECT_TRUE(daemon.nothing_is_held());
  }

  static control::DaemonConfig config() {
    control::DaemonConfig config = test_config();
    config.max_srqs = 1024;
    return config;
  }

  TestDaemon daemon{config(), 2};
  Conductor& conductor = *daemon.conductor;
};

TEST_F(TeardownTest, ASliceReleasesFewObjectsAndOthersAreServedInBetween) {
  constexpr std::size_t kMost = 5 * 64;  // of as many kinds
  {
    TestClient client(conductor, kUser), other(conductor, kOther);
    ASSERT_NO_FATAL_FAILURE(fill(client));
    other.hello();
    std::size_t left = objects_of(client.session()), slices = 1;
    for (; !release_some(client); ++slices) {
      EXPECT_LE(left - objects_of(client.session()), kMost);
      left = objects_of(client.session());
      // Both walk through the objects of all sessions.
      conductor.events().broadcast(conductor.state().sessions(), 9);
      conductor.take_worker_events();
      for (const char* const request : {R"({"command":"show","pages":true})", R"({"command":"stat"})"}) {
        const std::string answer = admin::handle_query(conductor.admin(), other.session(), request);
        EXPECT_FALSE(answer.starts_with(R"({"error")")) << answer;
      }
      const std::uint32_t pd = other.alloc_pd();
      EXPECT_EQ(other.destroy(UROCE_CMD_DEALLOC_PD, pd), 0);
      daemon.settle();
    }
    EXPECT_EQ(objects_of(client.session()), 0u);
    EXPECT_EQ(client.session().arena.total_bytes(), 0u);
    EXPECT_GE(slices, 7 * (kMany / 64));
  }
  expect_nothing_left();
}

TEST_F(TeardownTest, TheRestIsReleasedAtOnceAfterAnyNumberOfSlices) {
  bool done = false;
  for (std::size_t slices = 0; !done; slices += 7) {
    {
      TestClient client(conductor, kUser);
      ASSERT_NO_FATAL_FAILURE(fill(client));
      for (std::size_t i = 0; i < slices && !done; ++i) done = release_some(client);
    }
    expect_nothing_left();
    if (HasFailure()) return;
  }
}

TEST_F(TeardownTest, APdThatIsImportedBetweenSlicesStaysValid) {
  TestClient client(conductor, kUser), other(conductor, kUser);
  ASSERT_NO_FATAL_FAILURE(fill(client));
  other.hello();
  std::vector<UniqueFd> fds;
  fds.push_back(client.chunk_fd(0));
  ASSERT_EQ(other.send(UROCE_CMD_IMPORT_DEVICE, std::span<const std::byte>{}, std::move(fds)).status, 0);
  const std::uint32_t pd = client.session().pds.begin()->first;
  ASSERT_FALSE(release_some(client));
  const auto own = TestClient::value<uroce_handle>(other.send(UROCE_CMD_IMPORT_PD, uroce_handle{pd, 0}));
  ASSERT_NE(own.handle, 0u);
  const PdId number = other.session().pds.find(own.handle)->id;
  client.close();
  EXPECT_EQ(other.send(UROCE_CMD_IMPORT_PD, uroce_handle{pd, 0}).status, EINVAL);
  EXPECT_EQ(other.send(UROCE_CMD_ALLOC_MW, uroce_alloc_mw_request{own.handle, 1}).status, 0);
  for (std::uint32_t i = 0; i < 2 * control::kMaxPd; ++i) {
    const auto next = conductor.state().new_pd();
    ASSERT_NE(next, nullptr);
    ASSERT_NE(next->id(), number);
  }
  other.close();
  expect_nothing_left();
}

// Also one that is made and bound between two slices.
TEST_F(TeardownTest, WindowsOfASessionThatImportedAPdDieWithTheMemoryBelowThem) {
  TestClient client(conductor, kUser), other(conductor, kUser);
  client.hello();
  other.hello();
  const std::uint32_t pd = client.alloc_pd();
  std::byte* data = nullptr;
  const auto mr = TestClient::value<uroce_reg_mr_response>(
      client.reg_mr(pd, 0x10000, 4096, kReadWrite | memory::kMwBind, data));
  std::vector<UniqueFd> fds;
  fds.push_back(client.chunk_fd(0));
  ASSERT_EQ(other.send(UROCE_CMD_IMPORT_DEVICE, std::span<const std::byte>{}, std::move(fds)).status, 0);
  const auto own = TestClient::value<uroce_handle>(other.send(UROCE_CMD_IMPORT_PD, uroce_handle{pd, 0}));
  const PdId id = client.session().pds.find(pd)->id;
  const auto window = [&](int* status) {
    const control::Reply reply = other.send(UROCE_CMD_ALLOC_MW, uroce_alloc_mw_request{own.handle, 1});
    *status = reply.status;
    return TestClient::value<uroce_alloc_mw_response>(reply).rkey;
  };
  std::uint32_t tag = 0;
  const auto bind = [&](std::uint32_t rkey) {
    return daemon.memory.bind({.window = Key{rkey},
                               .new_key = Key{(rkey & ~0xffu) | (++tag & 0xffu)},
                               .mr = Key{mr.lkey},
                               .pd = id,
                               .address = 0x10000,
                               .length = 100,
                               .access = memory::kRemoteRead});
  };
  int status = 0;
  std::vector<std::uint32_t> windows;
  for (std::size_t i = 0; i < 1500; ++i) windows.push_back(window(&status));  // more than a slice looks at
  ASSERT_EQ(status, 0);
  ASSERT_EQ(bind(windows.back()), memory::Verdict::kOk);
  bool refused = false;
  std::size_t slices = 1;
  for (; !release_some(client); ++slices) {
    const std::uint32_t rkey = window(&status);
    refused |= status == EINVAL;
    if (status == 0) bind(rkey);
  }
  EXPECT_TRUE(refused);
  EXPECT_FALSE(daemon.memory.describe(Key{mr.lkey}));
  EXPECT_NE(bind(windows.front()), memory::Verdict::kOk);
  EXPECT_TRUE(conductor.state().closing_pds().empty());
  window(&status);
  EXPECT_EQ(status, 0);
  client.close();
  other.close();
  expect_nothing_left();
}

}  // namespace
}  // namespace uroce::daemon::testing
