// What one tenant may learn of another, and which rights a client has.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "all_pages.h"
#include "cm_party.h"
#include "control/session/privilege.h"
#include "test_client.h"
#include "test_daemon.h"

namespace uroce::daemon::testing {

using control::may_administer;

namespace {

using Json = nlohmann::json;

class TenantsTest : public ::testing::Test {
 protected:
  Json ask(TestClient& by, const Json& request) {
    return Json::parse(admin::handle_query(daemon.conductor->admin(), by.session(), request.dump()));
  }

  TestDaemon daemon;
  Conductor& conductor = *daemon.conductor;
};

/// A party with one object of each kind that has a section of its own.
void populate(Party& party, std::uint16_t port) {
  const std::uint32_t pd = party.client.alloc_pd();
  const ClientCq cq = party.client.create_cq(8);
  party.client.create_qp(TestClient::qp_request(pd, cq.made.handle));
  std::byte* data = nullptr;
  EXPECT_EQ(party.client.reg_mr(pd, 0x10000, 4096, 0, data).status, 0);
  uroce_create_srq_request srq{};
  srq.pd = pd, srq.max_wr = 8, srq.max_sge = 1;
  EXPECT_EQ(party.client.send(UROCE_CMD_CREATE_SRQ, srq).status, 0);
  party.listener(port);
}

TEST_F(TenantsTest, ATenantSeesItsOwnObjectsOnly) {
  Party owner(daemon, 4241), other(daemon, 4242);
  populate(owner, 7000);
  populate(other, 7001);
  for (const char* kind : {"sessions", "qps", "mrs", "cqs", "srqs", "cm_ids"}) {
    const Json one = ask(owner.client, {{"command", "show"}, {"what", kind}});
    ASSERT_EQ(one[kind].size(), 1u) << kind;
    EXPECT_EQ(one[kind][0]["session"], owner.client.session().id) << kind;
    EXPECT_EQ(one["hidden"], 1) << kind;
  }
  ASSERT_EQ(ask(owner.client, {{"command", "show"}})["qps"].size(), 1u);
  EXPECT_EQ(ask(owner.client, {{"command", "show"}, {"what", "worker_commands"}})["worker_commands"].size(), 0u);
  platform::Peer inside{::getpid(), 4241, UniqueFd()};
  inside.user_ns = {1, 2};
  TestClient container(conductor, std::move(inside));
  container.hello();
  EXPECT_EQ(ask(container, {{"command", "show"}, {"what", "qps"}})["qps"].size(), 0u);
}

TEST_F(TenantsTest, AnAdministratorSeesTheObjectsOfAll) {
  if (!may_administer(TestClient::myself())) GTEST_SKIP() << "takes root, or a user outside containers";
  Party one(daemon, 4241), other(daemon, 4242);
  populate(one, 7000);
  populate(other, 7001);
  TestClient administrator(conductor);
  const Json all = all_pages(conductor, administrator, {{"command", "show"}});
  EXPECT_EQ(all["qps"].size(), 2u);
  EXPECT_TRUE(all["mrs"][0].contains("key"));
  EXPECT_FALSE(all.contains("hidden"));
}

/// Keeps the writing end of a trace.
class FakeControls : public net::DeviceControls {
 public:
  std::string add_fault(std::string_view) override { return {}; }
  std::string remove_fault(std::string_view) override { return {}; }
  std::string set_fault(std::string_view) override { return {}; }
  std::string start_capture(std::string_view filter, int& reader) override {
    if (filter != "op=ACK") return "filter \"" + std::string(filter) + "\"";
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return "no pipe";
    reader = ends[0];
    writer.reset(ends[1]);
    return {};
  }
  std::string stop_capture() override { return {}; }
  std::vector<std::pair<std::string, std::string>> describe() const override { return {}; }
  UniqueFd writer;
};

TEST(Trace, ATraceGoesIntoAPipeThatTheDaemonMakes) {
  if (!may_administer(TestClient::myself())) GTEST_SKIP() << "takes root, or a user outside containers";
  FakeControls controls;
  control::DaemonConfig config = test_config();
  config.controls = &controls;
  TestDaemon daemon(config);
  TestClient administrator(*daemon.conductor), other(*daemon.conductor, 4241);
  UniqueFd reader;
  const auto trace = [&](TestClient& by, const char* filter) {
    const std::string text = Json{{"command", "trace"}, {"filter", filter}}.dump();
    return Json::parse(admin::handle_query(daemon.conductor->admin(), by.session(), text, &reader));
  };
  EXPECT_TRUE(trace(other, "op=ACK").contains("error"));
  EXPECT_TRUE(trace(administrator, "op=NONSENSE").contains("error"));
  EXPECT_FALSE(reader.valid());
  EXPECT_FALSE(controls.writer.valid());
  EXPECT_FALSE(trace(administrator, "op=ACK").contains("error"));
  char byte = 7;
  ASSERT_EQ(::write(controls.writer.get(), &byte, 1), 1);
  ASSERT_EQ(::read(reader.get(), &byte, 1), 1);
  EXPECT_EQ(::fcntl(reader.get(), F_GETFL) & O_ACCMODE, O_RDONLY);
}

TEST_F(TenantsTest, AUserNumberWithoutAProcessHasNoRights) {
  const platform::Peer claimed{::getpid(), 0, UniqueFd()};
  EXPECT_FALSE(may_administer(claimed));
  EXPECT_FALSE(control::may_use_raw_packets(claimed));
}

constexpr std::uint64_t bit(int capability) { return std::uint64_t{1} << capability; }

/// Whether a child with these capabilities may, after it has left the namespaces. nullopt: it could not be made.
struct ChildRights {
  bool raw = false, administer = false;
};
std::optional<ChildRights> rights_of_child(std::uint64_t capabilities, int leave) {
  int ready[2], end[2];
  if (::pipe(ready) != 0 || ::pipe(end) != 0) return std::nullopt;
  const pid_t child = ::fork();
  if (child == 0) {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    const auto low = static_cast<__u32>(capabilities), high = static_cast<__u32>(capabilities >> 32);
    __user_cap_data_struct data[2] = {{low, low, 0}, {high, high, 0}};
    // Leaving the user namespace gives all capabilities in the new one.
    const bool done = (leave == 0 || ::unshare(leave) == 0) &&
                      ((leave & CLONE_NEWUSER) != 0 || ::syscall(SYS_capset, &header, data) == 0);
    const char byte = done ? 'y' : 'n';
    ::close(end[1]);
    char ignored;
    if (::write(ready[1], &byte, 1) == 1 && ::read(end[0], &ignored, 1) >= 0) ::_exit(0);
    ::_exit(1);
  }
  char byte = 'n';
  const bool told = ::read(ready[0], &byte, 1) == 1;
  platform::Peer peer{child, ::geteuid(), UniqueFd(::syscall(SYS_pidfd_open, child, 0))};
  const ChildRights rights{control::may_use_raw_packets(peer), may_administer(peer)};
  for (const int fd : {ready[0], ready[1], end[0], end[1]}) ::close(fd);
  ::waitpid(child, nullptr, 0);
  if (!told || byte != 'y') return std::nullopt;
  return rights;
}

TEST(Rights, AreThoseThatCountInThePortsNamespaces) {
  if (::geteuid() != 0) GTEST_SKIP() << "takes root, to give children chosen capabilities";
  struct Case {
    std::uint64_t capabilities;
    int leave;
    bool raw, administer;
  };
  const Case cases[] = {
      {bit(CAP_NET_RAW) | bit(CAP_DAC_OVERRIDE), 0, true,
       false},  // what container engines give, on the host's network
      {bit(CAP_NET_RAW), CLONE_NEWNET, false, false},
      {bit(CAP_NET_ADMIN), 0, false, true},
      {bit(CAP_NET_ADMIN), CLONE_NEWNET, false, false},
      {bit(CAP_SYS_ADMIN), 0, false, true},
      {bit(CAP_SYS_ADMIN) | bit(CAP_NET_RAW), CLONE_NEWNET, true, true},
      {0, 0, false, false},
      {~std::uint64_t{0}, CLONE_NEWUSER | CLONE_NEWNET, false, false},
  };
  for (const Case& each : cases) {
    const auto rights = rights_of_child(each.capabilities, each.leave);
    if (!rights) continue;  // this kernel makes no such namespaces
    EXPECT_EQ(rights->raw, each.raw) << std::hex << each.capabilities << " left " << each.leave;
    EXPECT_EQ(rights->administer, each.administer) << std::hex << each.capabilities << " left " << each.leave;
  }
}

TEST_F(TenantsTest, AControlledQkeyTakesTheCapability) {
  TestClient client(conductor, 4241);
  client.hello();
  const std::uint32_t pd = client.alloc_pd();
  const ClientCq cq = client.create_cq(8);
  auto wanted = TestClient::qp_request(pd, cq.made.handle);
  wanted.type = 4;  // UD
  const ClientQp qp = client.create_qp(wanted);
  uroce_modify_qp_request request{};
  request.handle = qp.made.handle;
  request.attr.state = 1;
  request.attr.port = 1;
  request.attr.qkey = 0x80010000;
  request.mask = proto::kAttrState | proto::kAttrPkeyIndex | proto::kAttrPort | proto::kAttrQkey;
  EXPECT_EQ(client.send(UROCE_CMD_MODIFY_QP, request).status, EPERM);
  request.attr.qkey = 0x7fffffff;
  EXPECT_EQ(client.send(UROCE_CMD_MODIFY_QP, request).status, 0);
}

}  // namespace
}  // namespace uroce::daemon::testing
