// Control commands: which requests are accepted and which are refused.
#include <gtest/gtest.h>

#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "admin/query.h"
#include "daemon/control_loop.h"
#include "test_client.h"
#include "test_daemon.h"

namespace uroce::daemon::testing {

using control::path_mtu_of_link;
using control::Rejection;

namespace {

class ConductorTest : public ::testing::Test {
 protected:
  TestDaemon daemon;
  Conductor& conductor = *daemon.conductor;
};

TEST_F(ConductorTest, HelloHandsOutHeaderDoorbellsAndDescriptors) {
  TestClient client(conductor);
  const uroce_hello_response hello = client.hello();
  EXPECT_EQ(hello.workers, 1u);
  EXPECT_EQ(hello.chunks.count, 2u);
  EXPECT_EQ(hello.chunks.chunk[0].client_writes, 1u);
  EXPECT_EQ(hello.chunks.chunk[1].client_writes, 0u);
  EXPECT_EQ(client.header()->version, UROCE_ABI_VERSION);
  EXPECT_EQ(client.header()->magic, UROCE_ABI_MAGIC);
  EXPECT_GE(::fcntl(client.hello_fd(0), F_GETFD), 0);
  EXPECT_GE(::fcntl(client.hello_fd(1), F_GETFD), 0);
}

TEST_F(ConductorTest, NothingButQueriesGoesBeforeHelloAndHelloGoesOnce) {
  TestClient client(conductor);
  EXPECT_EQ(client.send(UROCE_CMD_ALLOC_PD, std::span<const std::byte>{}).status, EINVAL);
  EXPECT_EQ(client.send(UROCE_CMD_QUERY_DEVICE, std::span<const std::byte>{}).status, 0);
  client.hello();
  EXPECT_EQ(client.send(UROCE_CMD_HELLO, uroce_hello_request{UROCE_ABI_VERSION, 1, "again"}).status, EINVAL);
}

TEST_F(ConductorTest, AClientOfAnotherVersionIsTurnedAway) {
  TestClient client(conductor);
  EXPECT_EQ(client.send(UROCE_CMD_HELLO, uroce_hello_request{UROCE_ABI_VERSION + 1, 1, "old"}).status, EPROTO);
}

TEST_F(ConductorTest, PortSaysWhatTheLinkCarries) {
  TestClient client(conductor);
  const auto port =
      TestClient::value<uroce_port_response>(client.send(UROCE_CMD_QUERY_PORT, std::span<const std::byte>{}));
  EXPECT_EQ(port.active_mtu, 5u);
  EXPECT_EQ(port.gid_tbl_len, 1u);
  EXPECT_EQ(path_mtu_of_link(1500), 3u);
  EXPECT_EQ(path_mtu_of_link(4176), 5u);
  EXPECT_EQ(path_mtu_of_link(4175), 4u);
  EXPECT_EQ(path_mtu_of_link(100), 1u);
  const auto gid = TestClient::value<uroce_gid_response>(client.send(UROCE_CMD_QUERY_GID, uroce_gid_request{0, 0}));
  EXPECT_EQ(control::gid_text(gid.gid), "0000:0000:0000:0000:0000:ffff:c000:0201");
  EXPECT_EQ(gid.type, 1u);
  EXPECT_EQ(client.send(UROCE_CMD_QUERY_GID, uroce_gid_request{1, 0}).status, EINVAL);
}

TEST_F(ConductorTest, ObjectsInUseAreNotDestroyed) {
  TestClient client(conductor);
  client.hello();
  const std::uint32_t pd = client.alloc_pd();
  const ClientCq cq = client.create_cq(10);
  EXPECT_EQ(cq.made.entries, 16u);
  const ClientQp qp = client.create_qp(TestClient::qp_request(pd, cq.made.handle));
  ASSERT_NE(qp.made.handle, 0u);
  EXPECT_EQ(client.destroy(UROCE_CMD_DEALLOC_PD, pd), EBUSY);
  EXPECT_EQ(client.destroy(UROCE_CMD_DESTROY_CQ, cq.made.handle), EBUSY);
  EXPECT_EQ(client.destroy(UROCE_CMD_DESTROY_QP, qp.made.handle), 0);
  EXPECT_EQ(client.destroy(UROCE_CMD_DESTROY_QP, qp.made.handle), ENOENT);
  EXPECT_EQ(client.destroy(UROCE_CMD_DESTROY_CQ, cq.made.handle), 0);
  EXPECT_EQ(client.destroy(UROCE_CMD_DEALLOC_PD, pd), 0);
}

TEST_F(ConductorTest, OneClientCannotNameAnothersObjects) {
  TestClient alice(conductor), mallory(conductor);
  alice.hello();
  mallory.hello();
  const std::uint32_t pd = alice.alloc_pd();
  const ClientCq cq = alice.create_cq(16);
  std::byte* data = nullptr;
  const control::Reply mr = alice.reg_mr(pd, 0x10000, 4096, kReadWrite, data);
  ASSERT_EQ(mr.status, 0);
  const ClientQp qp = alice.create_qp(TestClient::qp_request(pd, cq.made.handle));
  // Handles of one session mean nothing in another.
  int status = 0;
  mallory.create_qp(TestClient::qp_request(pd, cq.made.handle), &status);
  EXPECT_EQ(status, EINVAL);
  EXPECT_EQ(mallory.destroy(UROCE_CMD_DEREG_MR, TestClient::value<uroce_reg_mr_response>(mr).handle), ENOENT);
  EXPECT_EQ(mallory.destroy(UROCE_CMD_DESTROY_QP, qp.made.handle), ENOENT);
  EXPECT_EQ(mallory.destroy(UROCE_CMD_DEALLOC_PD, pd), ENOENT);
  EXPECT_EQ(alice.destroy(UROCE_CMD_DESTROY_QP, qp.made.handle), 0);
}

TEST_F(ConductorTest, RegistrationsThatMakeNoSenseAreRefused) {
  TestClient client(conductor);
  client.hello();
  const std::uint32_t pd = client.alloc_pd();
  std::byte* data = nullptr;
  EXPECT_EQ(client.reg_mr(pd + 1, 0x10000, 4096, kReadWrite, data).status, EINVAL);
  EXPECT_EQ(client.reg_mr(pd, 0x10000, 4096, memory::kRemoteWrite, data).status, EINVAL);
  EXPECT_EQ(client.reg_mr(pd, 0x10000, 4096, 1u << 15, data).status, EINVAL);
  // Pieces must cover exactly the pages of the range.
  EXPECT_EQ(client.reg_mr(pd, 0x10001, 4096, kReadWrite, data).status, EINVAL);
  EXPECT_EQ(client.reg_mr(pd, ~std::uint64_t{0} - 100, 4096, kReadWrite, data).status, EINVAL);
  uroce_reg_mr_request request{};
  request.pd = pd;
  request.addr = 0x1000;
  request.length = 0;
  request.piece_count = 1;  // a region of 0 bytes has no pages
  EXPECT_EQ(client.send(UROCE_CMD_REG_MR, request).status, EINVAL);
  request.length = 4096;
  request.piece_count = UROCE_MAX_MR_PIECES + 1;
  EXPECT_EQ(client.send(UROCE_CMD_REG_MR, request).status, EINVAL);
  request.piece_count = 1;
  request.piece[0] = {7, 0, 0, 4096};
  EXPECT_EQ(client.send(UROCE_CMD_REG_MR, request).status, EINVAL);
  EXPECT_EQ(daemon.memory.size(), 0u);
}

TEST_F(ConductorTest, KeysEndWithTheirRegion) {
  TestClient client(conductor);
  client.hello();
  const std::uint32_t pd = client.alloc_pd();
  std::byte* data = nullptr;
  const auto mr = TestClient::value<uroce_reg_mr_response>(client.reg_mr(pd, 0x10000, 8192, kReadWrite, data));
  EXPECT_TRUE(daemon.memory.describe(Key{mr.rkey}));
  EXPECT_EQ(client.destroy(UROCE_CMD_DEALLOC_PD, pd), EBUSY);
  EXPECT_EQ(client.destroy(UROCE_CMD_DEREG_MR, mr.handle), 0);
  EXPECT_FALSE(daemon.memory.describe(Key{mr.rkey}));
  EXPECT_EQ(client.destroy(UROCE_CMD_DEALLOC_PD, pd), 0);
}

TEST_F(ConductorTest, QueuesBeyondTheDeviceAreRefused) {
  TestClient client(conductor);
  client.hello();
  const std::uint32_t pd = client.alloc_pd();
  const ClientCq cq = client.create_cq(16);
  const auto status = [&](auto&& change) {
    uroce_create_qp_request request = TestClient::qp_request(pd, cq.made.handle);
    change(request);
    int result = 0;
    client.create_qp(request, &result);
    return result;
  };
  EXPECT_EQ(status([](auto& r) { r.max_send_wr = control::kMaxQpWr + 1; }), EINVAL);
  EXPECT_EQ(status([](auto& r) { r.max_send_wr = ~0u; }), EINVAL);
  EXPECT_EQ(status([](auto& r) { r.max_recv_sge = proto::kMaxSge + 1; }), EINVAL);
  EXPECT_EQ(status([](auto& r) { r.max_inline = ~0u; }), EINVAL);
  EXPECT_EQ(status([](auto& r) { r.type = 7; }), EOPNOTSUPP);
  EXPECT_EQ(status([](auto& r) { r.srq = 1; }), EINVAL);
  EXPECT_EQ(status([](auto& r) {
              r.max_send_wr = control::kMaxQpWr, r.max_send_sge = proto::kMaxSge,
              r.max_inline = control::kMaxInline;
            }),
            0);
  EXPECT_EQ(client.create_cq(control::kMaxCqe + 1).made.handle, 0u);
  EXPECT_EQ(client.create_cq(0).made.handle, 0u);
}

TEST_F(ConductorTest, ModifyKnowsWhatThePortCanDo) {
  TestClient client(conductor);
  client.hello();
  const std::uint32_t pd = client.alloc_pd();
  const ClientCq cq = client.create_cq(16);
  const ClientQp qp = client.create_qp(TestClient::qp_request(pd, cq.made.handle));
  uroce_modify_qp_request request{};
  request.handle = qp.made.handle;
  request.attr.state = 1;
  request.attr.port = 2;
  request.mask = proto::kAttrState | proto::kAttrPkeyIndex | proto::kAttrPort | proto::kAttrAccessFlags;
  EXPECT_EQ(client.send(UROCE_CMD_MODIFY_QP, request).status, EINVAL);
  request.attr.port = 1;
  request.attr.pkey_index = 1;
  EXPECT_EQ(client.send(UROCE_CMD_MODIFY_QP, request).status, EINVAL);
  request.attr.pkey_index = 0;
  request.attr.state = 77;
  EXPECT_EQ(client.send(UROCE_CMD_MODIFY_QP, request).status, EINVAL);
  request.attr.state = 1;
  EXPECT_EQ(client.send(UROCE_CMD_MODIFY_QP, request).status, 0);
  const auto now =
      TestClient::value<uroce_query_qp_response>(client.send(UROCE_CMD_QUERY_QP, uroce_handle{qp.made.handle, 0}));
  EXPECT_EQ(now.attr.state, 1u);
  EXPECT_EQ(now.attr.port, 1u);
}

TEST_F(ConductorTest, ARequestWaitsForAnAddressForWhichNobodyAnswers) {
  TestClient client(conductor);
  client.hello();
  const std::uint32_t pd = client.alloc_pd();
  uroce_create_ah_request request{};
  request.pd = pd;
  request.av.is_global = 1;
  request.av.port_num = 1;
  const wire::Address silent = ipv4(77);
  std::memcpy(request.av.dgid, silent.bytes.data(), 16);
  EXPECT_EQ(client.send(UROCE_CMD_CREATE_AH, request).status, control::kPending);
  EXPECT_EQ(client.send(UROCE_CMD_RESOLVE_NEIGHBOUR, uroce_resolve_request{request.av}).status, control::kPending);
  request.av.sgid_index = 9;
  EXPECT_EQ(client.send(UROCE_CMD_CREATE_AH, request).status, EINVAL);
  request.av.sgid_index = 0;
  const wire::Address elsewhere{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 198, 51, 100, 1}};
  std::memcpy(request.av.dgid, elsewhere.bytes.data(), 16);
  EXPECT_EQ(client.send(UROCE_CMD_CREATE_AH, request).status, EHOSTUNREACH);
  const wire::Address own = ipv4(1);
  std::memcpy(request.av.dgid, own.bytes.data(), 16);
  EXPECT_EQ(client.send(UROCE_CMD_CREATE_AH, request).status, 0);
  const auto resolved = TestClient::value<uroce_resolve_response>(
      client.send(UROCE_CMD_RESOLVE_NEIGHBOUR, uroce_resolve_request{request.av}));
  EXPECT_TRUE(std::ranges::equal(resolved.mac, conductor.state().port().mac()));
  EXPECT_EQ(resolved.vlan, 0xffff);
}

TEST(ConductorLimits, AUserThatHasEnoughGetsNoMoreAndOthersDo) {
  control::DaemonConfig config = test_config();
  config.limits = {.qps = 2, .cqs = 1, .mrs = 1};
  TestDaemon daemon(config);
  TestClient one(*daemon.conductor, 1000), same(*daemon.conductor, 1000), other(*daemon.conductor, 1001);
  for (TestClient* client : {&one, &same, &other}) client->hello();
  const std::uint32_t pd = one.alloc_pd();
  const ClientCq cq = one.create_cq(16);
  ASSERT_NE(cq.made.handle, 0u);
  EXPECT_EQ(same.create_cq(16).made.handle, 0u);
  EXPECT_NE(other.create_cq(16).made.handle, 0u);
  const auto request = TestClient::qp_request(pd, cq.made.handle);
  EXPECT_NE(one.create_qp(request).made.handle, 0u);
  const ClientQp second = one.create_qp(request);
  int status = 0;
  one.create_qp(request, &status);
  EXPECT_EQ(status, ENOMEM);
  EXPECT_EQ(one.destroy(UROCE_CMD_DESTROY_QP, second.made.handle), 0);
  EXPECT_NE(one.create_qp(request).made.handle, 0u);
  one.close();
  EXPECT_NE(same.create_cq(16).made.handle, 0u);
  EXPECT_EQ(daemon.conductor->state().rejections().of(Rejection::limit_reached), 2u);
}

TEST(ConductorLimits, RegionsAndWindowsOfAllAUsersSessionsCountTogether) {
  control::DaemonConfig config = test_config();
  config.limits.mrs = 2;
  TestDaemon daemon(config);
  TestClient one(*daemon.conductor, 1000), same(*daemon.conductor, 1000), other(*daemon.conductor, 1001);
  for (TestClient* client : {&one, &same, &other}) client->hello();
  std::byte* data = nullptr;
  const auto reg = [&](TestClient& client) {
    return client.reg_mr(client.alloc_pd(), 0x10000, 4096, kReadWrite, data);
  };
  const auto window = [](TestClient& client) {
    uroce_alloc_mw_request request{};
    request.pd = client.alloc_pd();
    request.type = 1;
    return client.send(UROCE_CMD_ALLOC_MW, request).status;
  };
  const control::Reply first = reg(one);
  ASSERT_EQ(first.status, 0);
  EXPECT_EQ(window(same), 0);
  EXPECT_EQ(reg(one).status, ENOMEM);
  EXPECT_EQ(reg(same).status, ENOMEM);
  EXPECT_EQ(window(one), ENOMEM);
  EXPECT_EQ(same.send(UROCE_CMD_ALLOC_NULL_MR, uroce_handle{same.alloc_pd(), 0}).status, ENOMEM);
  EXPECT_EQ(daemon.memory.size(), 2u);
  EXPECT_EQ(reg(other).status, 0);
  EXPECT_EQ(one.destroy(UROCE_CMD_DEREG_MR, TestClient::value<uroce_reg_mr_response>(first).handle), 0);
  EXPECT_EQ(reg(same).status, 0);
  EXPECT_EQ(reg(one).status, ENOMEM);
  same.close();
  EXPECT_EQ(reg(one).status, 0);
  EXPECT_EQ(reg(one).status, 0);
  EXPECT_EQ(reg(one).status, ENOMEM);
}

TEST(ConductorLimits, BytesOfQueuesCount) {
  control::DaemonConfig config = test_config();
  config.limits.queue_bytes = 1u << 20;
  TestDaemon daemon(config);
  TestClient client(*daemon.conductor, 1000);
  client.hello();
  EXPECT_EQ(client.create_cq(1u << 15).made.handle, 0u);
  EXPECT_NE(client.create_cq(1u << 12).made.handle, 0u);
}

TEST_F(ConductorTest, AClosedSessionLeavesNothingBehind) {
  {
    TestClient client(conductor);
    client.hello();
    const std::uint32_t pd = client.alloc_pd();
    const auto channel =
        TestClient::value<uroce_handle>(client.send(UROCE_CMD_CREATE_CHANNEL, std::span<const std::byte>{}));
    const ClientCq cq = client.create_cq(16, channel.handle, 5);
    std::byte* data = nullptr;
    ASSERT_EQ(client.reg_mr(pd, 0x10000, 4096, kReadWrite, data).status, 0);
    for (int i = 0; i < 100; ++i) {
      const ClientQp qp = client.create_qp(TestClient::qp_request(pd, cq.made.handle));
      ASSERT_NE(qp.made.handle, 0u);
    }
    EXPECT_EQ(daemon.memory.size(), 1u);
  }
  EXPECT_EQ(daemon.memory.size(), 0u);
  EXPECT_TRUE(conductor.state().sessions().empty());
  EXPECT_TRUE(daemon.nothing_is_held());
  EXPECT_EQ(conductor.events().qps(), 0u);
  EXPECT_EQ(conductor.events().cqs(), 0u);
  EXPECT_EQ(conductor.state().qps_of_worker(0), 0u);
}

TEST_F(ConductorTest, GarbageIsAnsweredWithErrorsAndHarmsNobody) {
  TestClient good(conductor);
  good.hello();
  std::mt19937_64 random(3);
  for (int round = 0; round < 20'000; ++round) {
    TestClient bad(conductor);
    if (round % 2 == 0) bad.hello();
    std::vector<std::byte> body(random() % 300);
    for (std::byte& b : body) b = random() % 3 == 0 ? static_cast<std::byte>(random()) : std::byte{0};
    for (int i = 0; i < 4; ++i)
      bad.send(static_cast<std::uint32_t>(random() % 24), std::span<const std::byte>(body));
  }
  EXPECT_NE(good.alloc_pd(), 0u);
  EXPECT_EQ(conductor.state().sessions().size(), 1u);
}

TEST_F(ConductorTest, TruncatedRequestsOfEveryCommandAreRefused) {
  TestClient client(conductor);
  client.hello();
  for (std::uint32_t command = 1; command < UROCE_CMD_ADMIN; ++command) {
    const std::vector<std::byte> body(3, std::byte{1});
    EXPECT_EQ(client.send(command, std::span(body)).status, EINVAL) << "command " << command;
    EXPECT_EQ(conductor.state().rejections().of(Rejection::malformed), command);
  }
  std::vector<std::byte> three(3);
  conductor.handle(client.session(), three, {});
  EXPECT_TRUE(client.session().close_pending);
  EXPECT_EQ(conductor.state().rejections().of(Rejection::sessions_closed), 1u);
}

TEST_F(ConductorTest, WhatIsRefusedIsCountedByReason) {
  TestClient client(conductor, 1234), stranger(conductor);
  const auto nothing = std::span<const std::byte>{};
  const auto grows = [&](Rejection reason, auto&& refused) {
    std::vector<std::uint64_t> before;
    for (std::size_t i = 0; i < std::size(control::kRejectionNames); ++i) {
      before.push_back(conductor.state().rejections().of(static_cast<Rejection>(i)));
    }
    refused();
    for (std::size_t i = 0; i < before.size(); ++i) {
      const auto each = static_cast<Rejection>(i);
      EXPECT_EQ(conductor.state().rejections().of(each) - before[i], each == reason ? 1u : 0u)
          << control::kRejectionNames[i] << " where " << control::kRejectionNames[static_cast<std::size_t>(reason)]
          << " is due";
    }
  };
  const auto ask = [&](const char* text) { admin::handle_query(conductor.admin(), client.session(), text); };
  client.hello();
  const std::uint32_t pd = client.alloc_pd();
  const ClientCq cq = client.create_cq(16);
  client.create_qp(TestClient::qp_request(pd, cq.made.handle));
  std::byte* data = nullptr;

  grows(Rejection::before_hello, [&] { stranger.send(UROCE_CMD_ALLOC_PD, nothing); });
  grows(Rejection::before_hello, [&] { stranger.send(UROCE_CMD_CM_CREATE_ID, nothing); });
  grows(Rejection::bad_version, [&] {
    stranger.send(UROCE_CMD_HELLO, uroce_hello_request{UROCE_ABI_VERSION + 1, 1, "old"});
  });
  grows(Rejection::unknown_command, [&] { client.send(0, nothing); });
  grows(Rejection::unknown_command, [&] { client.send(~0u, nothing); });
  grows(Rejection::malformed, [&] { client.send(UROCE_CMD_DEALLOC_PD, nothing); });
  grows(Rejection::malformed, [&] { client.send(UROCE_CMD_ALLOC_PD, uroce_handle{1, 0}); });
  grows(Rejection::malformed, [&] { client.send(UROCE_CMD_CM_CREATE_ID, nothing); });
  grows(Rejection::malformed, [&] { client.send(UROCE_CMD_REG_MR, nothing); });
  grows(Rejection::unknown_handle, [&] { client.destroy(UROCE_CMD_DESTROY_QP, 77); });
  grows(Rejection::unknown_handle, [&] { client.create_qp(TestClient::qp_request(pd, 77)); });
  grows(Rejection::unknown_handle, [&] { client.destroy(UROCE_CMD_CM_DESTROY_ID, 77); });
  grows(Rejection::bad_value, [&] { client.create_cq(0); });
  grows(Rejection::bad_value, [&] { client.send(UROCE_CMD_QUERY_GID, uroce_gid_request{99, 0}); });
  grows(Rejection::bad_value, [&] { ask(R"({"command":"nonsense"})"); });
  grows(Rejection::no_permission, [&] { ask(R"({"command":"link","change":"down"})"); });
  grows(Rejection::in_use, [&] { client.destroy(UROCE_CMD_DEALLOC_PD, pd); });
  grows(Rejection::unsupported, [&] {
    auto request = TestClient::qp_request(pd, cq.made.handle);
    request.type = 7;
    client.create_qp(request);
  });
  grows(Rejection::other, [&] {
    ASSERT_EQ(client.reg_mr(pd, 0x10000, 4096, kReadWrite, data).status, 0);
    conductor.state().rejections().count(control::rejection_of(EIO));
  });

  const auto stat =
      nlohmann::json::parse(admin::handle_query(conductor.admin(), client.session(), R"({"command":"stat"})"));
  EXPECT_EQ(stat["rejected"]["malformed"], 4);
  EXPECT_EQ(stat["rejected"]["limit_reached"], 0);
}

TEST(Alive, IsReportedOnlyWhileAllWorkersRun) {
  std::atomic<int> reports{0};
  const ProcessHooks hooks{.on_alive = [&] { ++reports; }, .alive_interval = kMillisecond};
  TestDaemon daemon(test_config(), 2);
  char directory[] = "/tmp/uroce-alive-XXXXXX";
  ASSERT_NE(::mkdtemp(directory), nullptr);
  const std::string path = std::string(directory) + "/socket";
  ControlLoop loop;
  ASSERT_TRUE(loop.listen(*daemon.conductor, path).ok());
  for (auto& core : daemon.cores) core->set_threaded(true);
  std::atomic<bool> stop{false}, stopped{false};
  std::thread control([&] {
    loop.serve(stop, hooks);
    stopped = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(reports, 0);
  // One of two workers does not do.
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
  while (std::chrono::steady_clock::now() < end) daemon.loops[0]->step(monotonic_now());
  EXPECT_EQ(reports, 0);
  EXPECT_TRUE(daemon.run_until([&] { return reports >= 3; }));
  const int before = reports;
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LE(reports, before + 1);
  stop = true;
  EXPECT_TRUE(daemon.run_until([&] { return stopped.load(); }));  // it may wait for a worker
  control.join();
  for (auto& core : daemon.cores) core->set_threaded(false);
  daemon.settle();
  std::filesystem::remove_all(directory);
}

TEST_F(ConductorTest, AdminShowsWhatThereIsAndChangesNothingForStrangers) {
  TestClient client(conductor, 1234);
  client.hello();
  const std::uint32_t pd = client.alloc_pd();
  const ClientCq cq = client.create_cq(16);
  std::byte* data = nullptr;
  ASSERT_EQ(client.reg_mr(pd, 0x10000, 4096, kReadWrite, data).status, 0);
  EXPECT_NE(client.create_qp(TestClient::qp_request(pd, cq.made.handle)).made.handle, 0u);
  const auto ask = [&](const char* text) {
    return nlohmann::json::parse(admin::handle_query(conductor.admin(), client.session(), text));
  };
  const auto all = ask(R"({"command":"show"})");
  EXPECT_EQ(all["devices"][0]["name"], "test0");
  EXPECT_EQ(all["sessions"][0]["program"], "test");
  EXPECT_EQ(all["qps"][0]["state"], "RESET");
  ASSERT_EQ(all["cqs"].size(), 1u);
  EXPECT_EQ(all["cqs"][0]["polled"], 0);
  EXPECT_EQ(all["cqs"][0]["armed"], false);
  EXPECT_EQ(all["mrs"].size(), 1u);
  EXPECT_FALSE(all["mrs"][0].contains("key"));
  EXPECT_TRUE(ask(R"({"command":"stat"})")["transport"].contains("out_of_sequence"));
  EXPECT_TRUE(ask(R"({"command":"show","what":"nonsense"})").contains("error"));
  EXPECT_TRUE(ask("[[[[").contains("error"));
  EXPECT_TRUE(ask(R"({"command":7})").contains("error"));
  EXPECT_TRUE(ask(R"({"command":"fault","settings":"drop=1"})").contains("error"));
  EXPECT_TRUE(ask(R"({"command":"trace"})").contains("error"));
}

}  // namespace
}  // namespace uroce::daemon::testing
