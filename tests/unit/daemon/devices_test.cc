// Two devices of one process: what they share, and what one does not do to the other.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "apps/urocectl/daemon_client.h"
#include "client/session.h"
#include "control/session/privilege.h"
#include "daemon/daemon.h"
#include "drivers/packet/switch/port.h"
#include "mapping/sigbus_guard.h"
#include "memory_device.h"
#include "test_client.h"
#include "test_daemon.h"

namespace uroce::daemon::testing {

using control::DaemonConfig;

namespace {

constexpr uid_t kUser = 4711;

class TwoDevicesTest : public ::testing::Test {
 protected:
  static DaemonConfig limited() {
    DaemonConfig config = test_config();
    config.limits.cqs = 3;
    return config;
  }

  TestDaemon one{limited()}, other{limited(), 1, false, one.process};
};

TEST_F(TwoDevicesTest, NoSessionHasTheNumberOfAnother) {
  std::set<std::uint64_t> numbers;
  for (int i = 0; i < 10; ++i) {
    TestClient a(*one.conductor), b(*other.conductor);
    numbers.insert(a.session().id);
    numbers.insert(b.session().id);
    EXPECT_EQ(other.conductor->state().session(a.session().id), nullptr);
  }
  EXPECT_EQ(numbers.size(), 20u);
  EXPECT_FALSE(numbers.contains(0));
}

TEST_F(TwoDevicesTest, AUsersLimitsHoldForBothTogether) {
  TestClient a(*one.conductor, kUser), b(*other.conductor, kUser), stranger(*other.conductor, kUser + 1);
  a.hello(), b.hello(), stranger.hello();
  const ClientCq first = a.create_cq(8);
  a.create_cq(8);
  b.create_cq(8);
  uroce_create_cq_request request{};
  request.entries = 8;
  const control::Reply refused = b.send(UROCE_CMD_CREATE_CQ, request);
  EXPECT_EQ(refused.status, ENOMEM);
  EXPECT_NE(one.process->quotas().last_refusal().find("user 4711 has reached its limit of 3 cqs"),
            std::string::npos);
  EXPECT_EQ(stranger.send(UROCE_CMD_CREATE_CQ, request).status, 0);
  EXPECT_EQ(a.send(UROCE_CMD_DESTROY_CQ, uroce_handle{first.made.handle, 0}).status, 0);
  EXPECT_EQ(b.send(UROCE_CMD_CREATE_CQ, request).status, 0);
}

TEST_F(TwoDevicesTest, WhatAClosedSessionHeldIsFreeForTheOther) {
  {
    TestClient a(*one.conductor, kUser);
    a.hello();
    for (int i = 0; i < 3; ++i) a.create_cq(8);
  }
  TestClient b(*other.conductor, kUser);
  b.hello();
  for (int i = 0; i < 3; ++i) b.create_cq(8);
  b.close();
  EXPECT_TRUE(one.nothing_is_held());
}

TEST_F(TwoDevicesTest, PollersOfBothCount) {
  EXPECT_EQ(one.process->count_pollers(0, 3).sessions, 3u);
  const control::Pollers both = one.process->count_pollers(0, 2);
  EXPECT_EQ(both.sessions, 5u);
  EXPECT_EQ(both.workers, 1u) << "one thread steps the workers of both";
  EXPECT_EQ(one.process->count_pollers(3, 1).sessions, 3u);
}

/// A daemon with two devices on a switch, and its control thread.
class TwoHostsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/uroce-hosts-XXXXXX";
    run_dir = ::mkdtemp(name);
    thread = std::thread([this] {
      const PortSpec<ethernet::SwitchPort> ports[] = {{config(0), {&port0}}, {config(1), {&port1}}};
      ProcessHooks hooks;
      hooks.on_ready = [this] { ready = true; };
      hooks.reread = [this] { return reread(); };
      hooks.reload = &reload;
      status = run_daemon<ethernet::SwitchPort>(ports, hooks, stop);
      ready = true;
    });
    while (!ready) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  void TearDown() override {
    stop = true;
    thread.join();
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_FALSE(std::filesystem::exists(socket_of(0)));
    EXPECT_FALSE(std::filesystem::exists(socket_of(1)));
    std::filesystem::remove_all(run_dir);
  }
  DaemonConfig config(std::uint8_t host) const {
    DaemonConfig made = test_config();
    made.run_dir = run_dir;
    made.name = "host" + std::to_string(host);
    made.addresses = {{ipv4(static_cast<std::uint8_t>(1 + host)), 24}};
    return made;
  }
  /// Both get another address, the first one a limit; or an error.
  Reread reread() {
    Reread next;
    if (broken) {
      next.outcome.error = "line 3: no";
    } else {
      for (std::uint8_t host = 0; host < 2; ++host) {
        next.devices.push_back(config(host));
        next.devices.back().addresses.push_back({ipv4(static_cast<std::uint8_t>(101 + host)), 24});
      }
      next.devices.front().limits.cqs = 2;
      next.outcome.changed = {"ip", "limits.user_cqs"};
    }
    ++reloads;
    return next;
  }
  std::string query(int host, const std::string& text) const {
    const ctl::Answer answer = ctl::ask(run_dir, "host" + std::to_string(host), ctl::Json::parse(text));
    return answer.problem + answer.json.dump();
  }
  std::string socket_of(int host) const { return run_dir + "/host" + std::to_string(host) + ".sock"; }
  std::unique_ptr<client::Session> open(int host) const {
    std::unique_ptr<client::Session> session;
    EXPECT_EQ(client::Session::open(socket_of(host), session), 0);
    return session;
  }
  static bool lives(client::Session& session) {
    uroce_handle made{};
    return session.call(UROCE_CMD_ALLOC_PD, {}, std::as_writable_bytes(std::span(&made, 1))) == 0;
  }

  std::string run_dir;
  ethernet::Switch lan{9000, 4096};
  ethernet::SwitchPort port0{lan, {2, 0, 0, 0, 0, 1}}, port1{lan, {2, 0, 0, 0, 0, 2}};
  std::atomic<bool> stop{false}, ready{false}, reload{false}, broken{false};
  std::atomic<int> reloads{0};
  absl::Status status;
  std::thread thread;
};

TEST_F(TwoHostsTest, ReadTheirSettingsAgainOnASignal) {
  const auto session = open(1);
  broken = true;
  reload = true;
  while (reloads == 0) std::this_thread::yield();
  EXPECT_EQ(query(1, R"({"command":"show","what":"devices"})").find("192.0.2.102"), std::string::npos);
  broken = false;
  reload = true;
  while (reloads == 1) std::this_thread::yield();
  EXPECT_NE(query(0, R"({"command":"show","what":"devices"})").find("192.0.2.101"), std::string::npos);
  EXPECT_NE(query(1, R"({"command":"show","what":"devices"})").find("192.0.2.102"), std::string::npos);
  EXPECT_TRUE(lives(*session));
}

TEST_F(TwoHostsTest, ReadTheirSettingsAgainOnRequest) {
  if (!control::may_administer(TestClient::myself())) GTEST_SKIP() << "takes root, or a user outside containers";
  broken = true;
  EXPECT_NE(query(0, R"({"command":"reload"})").find("line 3: no; nothing has changed"), std::string::npos);
  broken = false;
  EXPECT_NE(query(0, R"({"command":"reload"})").find(R"("changed":["ip","limits.user_cqs"],"restart_for":[])"),
            std::string::npos);
  EXPECT_NE(query(1, R"({"command":"show","what":"devices"})").find("192.0.2.102"), std::string::npos);
}

TEST_F(TwoHostsTest, EachHasItsSocketAndItsAddresses) {
  for (int host = 0; host < 2; ++host) {
    const auto session = open(host);
    ASSERT_NE(session, nullptr);
    EXPECT_TRUE(lives(*session));
    uroce_gid_response gid{};
    ASSERT_EQ(session->call(UROCE_CMD_QUERY_GID, uroce_gid_request{0, 0}, gid), 0);
    EXPECT_EQ(gid.gid[15], 1 + host);
  }
}

TEST_F(TwoHostsTest, AClientThatIsGoneTakesNoOtherWithIt) {
  const auto stays = open(1);
  for (int i = 0; i < 20; ++i) {
    const auto goes = open(i % 2);
    ASSERT_TRUE(lives(*goes));
  }
  EXPECT_TRUE(lives(*stays));
}

// The guard of the process knows sessions by number only; the second device must not be asked for the first's.
TEST_F(TwoHostsTest, ATruncatedQueueCostsItsOwnSessionWhicheverDeviceItIsOf) {
  constexpr std::size_t kPage = 4096;
  for (int host = 0; host < 2; ++host) {
    const auto first = open(0), second = open(1);
    ASSERT_TRUE(lives(*first) && lives(*second));
    const std::uint64_t number = static_cast<std::uint64_t>(2 * host + 1 + host);  // sessions count up from 1
    const UniqueFd file(::memfd_create("queue", MFD_CLOEXEC));
    ASSERT_EQ(::ftruncate(file.get(), kPage), 0);
    void* const page = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    ASSERT_NE(page, MAP_FAILED);
    ASSERT_TRUE(mapping::SigbusGuard::instance().add(page, kPage, number));
    ASSERT_EQ(::ftruncate(file.get(), 0), 0);
    EXPECT_EQ(*static_cast<volatile unsigned char*>(page), 0);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    client::Session& closed = host == 0 ? *first : *second;
    while (lives(closed) && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_FALSE(lives(closed));
    EXPECT_TRUE(lives(host == 0 ? *second : *first));
    mapping::SigbusGuard::instance().remove(page);
    ::munmap(page, kPage);
  }
}

}  // namespace
}  // namespace uroce::daemon::testing
