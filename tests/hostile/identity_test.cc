// Attacks on who a client is: with rights, files and numbers that belong to another user.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>

#include "tests/hostile/processes.h"
#include "tests/hostile/raw_client.h"

namespace uroce::hostile {
namespace {

constexpr std::uint32_t kXrcTarget = 10;  // uroce_qp_type of an XRC target QP

class Identity : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!is_root()) GTEST_SKIP() << "needs root, to attack one user by another";
    ASSERT_TRUE(daemon.ready()) << daemon.log();
  }
  DaemonProcess daemon;
};

Answer open_xrcd(RawClient& client, std::uint32_t flags, int file) {
  return client.call(UROCE_CMD_OPEN_XRCD, uroce_open_xrcd_request{flags, 0}, std::span(&file, 1));
}

TEST_F(Identity, OpensNoDomainOfAFileThatItMayNotOpen) {
  char path[] = "/tmp/uroce-domain-XXXXXX";
  const UniqueFd file(::mkstemp(path));  // 0600, root's
  RawClient owner(daemon.socket_path());
  ASSERT_EQ(owner.hello(), 0);
  const Answer domain = open_xrcd(owner, O_CREAT, file.get());
  ASSERT_EQ(domain.status, 0);
  uroce_create_qp_request request{};
  request.type = kXrcTarget;
  request.xrcd = domain.as<uroce_handle>().handle;
  const Qp target = owner.create_qp(request);
  ASSERT_EQ(target.status, 0);
  Child attacker(kAttacker, [&] {
    RawClient client(daemon.socket_path());
    if (client.hello() != 0) return 2;
    if (::open(path, O_RDONLY) >= 0) return 3;
    const UniqueFd name_only(::open(path, O_PATH));
    if (!name_only.valid()) return 4;
    if (open_xrcd(client, 0, name_only.get()).status != EBADF) return 5;
    if (open_xrcd(client, O_CREAT, name_only.get()).status != EBADF) return 6;
    // A domain that it may open has no QPs of others either.
    const Answer own = client.call(UROCE_CMD_OPEN_XRCD, uroce_open_xrcd_request{O_CREAT, 0});
    const uroce_open_qp_request open{own.as<uroce_handle>().handle, target.made.qpn, 0};
    return client.call(UROCE_CMD_OPEN_QP, open).status == EINVAL ? 0 : 7;
  });
  EXPECT_EQ(attacker.wait(), 0);
  ::unlink(path);
}

TEST_F(Identity, OpensNoTargetOfAnotherUserInASharedDomain) {
  char path[] = "/tmp/uroce-domain-XXXXXX";
  const UniqueFd file(::mkstemp(path));
  ASSERT_EQ(::fchmod(file.get(), 0644), 0);
  RawClient owner(daemon.socket_path());
  ASSERT_EQ(owner.hello(), 0);
  uroce_create_qp_request request{};
  request.type = kXrcTarget;
  request.xrcd = open_xrcd(owner, O_CREAT, file.get()).as<uroce_handle>().handle;
  const Qp target = owner.create_qp(request);
  ASSERT_EQ(target.status, 0);
  Child attacker(kAttacker, [&] {
    RawClient client(daemon.socket_path());
    const UniqueFd readable(::open(path, O_RDONLY));
    if (client.hello() != 0 || !readable.valid()) return 2;
    const Answer domain = open_xrcd(client, 0, readable.get());
    if (domain.status != 0) return 3;
    const uroce_open_qp_request open{domain.as<uroce_handle>().handle, target.made.qpn, 0};
    return client.call(UROCE_CMD_OPEN_QP, open).status == EINVAL ? 0 : 4;
  });
  EXPECT_EQ(attacker.wait(), 0);
  ::unlink(path);
}

/// What the victim tells the attacker: more than an attacker could learn.
struct Victim {
  std::atomic<std::uint32_t> qpn{0};
};

TEST_F(Identity, SendsNothingIntoAConnectionOfOthers) {
  Tenant honest(daemon.socket_path(), 1 << 20);
  ASSERT_TRUE(honest.ok()) << honest.error;
  const uroce_sge room{honest.memory.address() + 4096, 4096, honest.memory.made.lkey};
  ASSERT_TRUE(honest.client.post_recv(honest.qp, 77, std::span(&room, 1)));
  Shared<Victim> victim;
  victim->qpn = honest.qp.made.qpn;
  Child attacker(kAttacker, [&] {
    // A QP that is connected to the victim's, with the PSN that the victim expects: both start at 0.
    Tenant own(daemon.socket_path(), 1 << 20);
    Cq cq = own.client.create_cq(16);
    Qp forger = own.client.create_qp(own.pd, cq);
    if (!own.ok() || own.client.connect_qp(forger, victim->qpn) != 0) return 2;
    const uroce_sge forged{own.memory.address(), 6, own.memory.made.lkey};
    uroce_sq_entry entry{};
    entry.opcode = UROCE_WR_SEND;
    entry.flags = UROCE_SEND_SIGNALED;
    entry.num_sge = 1;
    if (!own.client.post_send(forger, entry, std::span(&forged, 1))) return 3;
    // Neither delivered nor acknowledged: the retries end in an error, or have not ended yet.
    uroce_cqe cqe{};
    return own.client.poll(cq, cqe, 500) && cqe.status == UROCE_WC_SUCCESS ? 4 : 0;
  });
  EXPECT_EQ(attacker.wait(), 0);
  uroce_cqe cqe{};
  EXPECT_FALSE(honest.client.poll(honest.cq, cqe, 0)) << "a forged message, wr_id " << cqe.wr_id;
  for (int i = 0; i < 10; ++i) EXPECT_GT(honest.write_once(), 0u);
}

TEST_F(Identity, LearnsNothingOfOthers) {
  Tenant honest(daemon.socket_path(), 1 << 20);
  ASSERT_TRUE(honest.ok()) << honest.error;
  char text[16];
  std::snprintf(text, sizeof(text), "0x%x", honest.qp.made.qpn);
  const std::string number = text;
  EXPECT_NE(honest.client.admin(R"({"command":"show"})").find(number), std::string::npos);
  EXPECT_EQ(honest.client.call(UROCE_CMD_DESTROY_CQ, uroce_handle{4711, 0}).status, ENOENT);
  EXPECT_NE(honest.client.admin(R"({"command":"show","what":"rejections"})").find("4711"), std::string::npos);
  Child attacker(kAttacker, [&] {
    for (const char* what : {"all", "qps", "mrs", "cqs", "srqs", "cm_ids", "flows", "errors", "worker_commands",
                             "rejections", "sessions", "devices", "workers", "neighbours", "settings"}) {
      RawClient client(daemon.socket_path());
      const std::string answer = client.admin(std::string(R"({"command":"show","what":")") + what + "\"}");
      if (answer.empty() || answer.find(number) != std::string::npos) return 2;
      if (answer.find("hostile") != std::string::npos) return 3;  // the name of the program
    }
    return 0;
  });
  EXPECT_EQ(attacker.wait(), 0);
}

TEST_F(Identity, ChangesNothingAndSeesNoFrames) {
  Child attacker(kAttacker, [&] {
    for (const std::string& request :
         {std::string(R"({"command":"trace"})"), std::string(R"({"command":"trace","stop":true})"),
          std::string(R"({"command":"link","change":"down"})"), std::string(R"({"command":"reload"})"),
          std::string(R"({"command":"fault","settings":"drop=1"})")}) {
      RawClient client(daemon.socket_path());
      if (client.admin(request).find("error") == std::string::npos) return 2;
    }
    return 0;
  });
  EXPECT_EQ(attacker.wait(), 0);
}

TEST_F(Identity, BindsNoLowPort) {
  const auto bind = [&](std::uint16_t port) {
    RawClient client(daemon.socket_path());
    if (client.hello() != 0) return -10;
    const Answer channel = client.call(UROCE_CMD_CM_OPEN_CHANNEL, uroce_cm_channel_request{5, 0});
    uroce_cm_create_id_request request{};
    request.channel = channel.as<uroce_handle>().handle;
    request.port_space = 0x106;  // RDMA_PS_TCP
    request.qp_type = 2;         // IBV_QPT_RC
    request.source.family = AF_INET;
    request.source.gid[10] = request.source.gid[11] = 0xff;
    request.source.port = port;
    return client.call(UROCE_CMD_CM_CREATE_ID, request).status;
  };
  EXPECT_EQ(bind(1023), 0) << "root";
  Child attacker(kAttacker, [&] { return bind(1022) == EACCES && bind(1024) == 0 ? 0 : 1; });
  EXPECT_EQ(attacker.wait(), 0);
}

TEST_F(Identity, AChildThatGivesUpRootHasNoRightsOfItsParent) {
  RawClient root(daemon.socket_path());
  ASSERT_EQ(root.hello(), 0);
  const std::uint32_t pd = root.alloc_pd();
  static std::array<char, 8192> memory;  // at the same address in the child
  uroce_reg_mr_request request{};
  request.pd = pd;
  request.addr = request.iova = reinterpret_cast<std::uint64_t>(memory.data());
  request.length = 4096;
  Child attacker(kAttacker, [&] {
    if (root.call(UROCE_CMD_REG_MR, request).status != EPERM) return 2;
    if (root.call(UROCE_CMD_CREATE_FLOW, uroce_create_flow_request{}).status != EPERM) return 3;
    return root.admin(R"({"command":"link","change":"down"})").find("error") != std::string::npos ? 0 : 4;
  });
  EXPECT_EQ(attacker.wait(), 0);
  EXPECT_EQ(root.call(UROCE_CMD_REG_MR, request).status, 0);
}

}  // namespace
}  // namespace uroce::hostile
