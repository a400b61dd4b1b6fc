// Raw packets over the whole path on one thread: privileges, which QP receives which frame, and what remains after
// clients.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "admin/query.h"
#include "control/session/privilege.h"
#include "test_client.h"
#include "test_daemon.h"
#include "wire/bytes.h"
#include "wire/network_headers.h"

namespace uroce::daemon::testing {

using control::may_use_raw_packets;
using platform::Peer;

namespace {

constexpr std::uint64_t kBase = 0x7000000;
constexpr std::uint32_t kRc = 2, kRaw = 8;
constexpr std::uint32_t kFrame = 64;

/// This process, as the peer of a socket.
Peer self() {
  return {::getpid(), ::getuid(), UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)))};
}

/// Queues over one registered piece of memory of a client.
class RawClient : public TestClient {
 public:
  explicit RawClient(Conductor& conductor) : TestClient(conductor, self()) {
    hello();
    pd = alloc_pd();
    cq = create_cq(64);
    key = value<uroce_reg_mr_response>(reg_mr(pd, kBase, 65536, 0xf, data)).lkey;
  }

  uroce_create_qp_request request(std::uint32_t type) const {
    auto request = qp_request(pd, cq.made.handle);
    request.type = type;
    if (type == UROCE_QPT_WQ) request.send_cq = request.max_send_wr = request.max_send_sge = 0;
    return request;
  }
  ClientQp make(std::uint32_t type, std::uint32_t flags = 0) {
    auto asked = request(type);
    asked.flags |= flags;
    ClientQp qp = create_qp(asked);
    if (type == kRaw) {
      EXPECT_EQ(modify(qp, 1, proto::kAttrPort), 0);
    }
    EXPECT_EQ(modify(qp, 2, 0), 0);
    if (type == kRaw) {
      EXPECT_EQ(modify(qp, 3, 0), 0);
    }
    return qp;
  }
  int modify(const ClientQp& qp, std::uint32_t state, std::uint32_t mask) {
    uroce_modify_qp_request request{};
    request.handle = qp.made.handle;
    request.mask = proto::kAttrState | mask;
    request.attr.state = state;
    request.attr.port = 1;
    return send(UROCE_CMD_MODIFY_QP, request).status;
  }
  uroce_sge sge(std::uint64_t offset, std::uint32_t length) const { return {kBase + offset, length, key}; }

  uroce_create_flow_request flow_to(std::uint32_t handle) const {
    uroce_create_flow_request request{};
    request.qp = handle;
    return request;
  }
  std::uint32_t add(const uroce_create_flow_request& request, int* status = nullptr) {
    const control::Reply reply = send(UROCE_CMD_CREATE_FLOW, request);
    if (status != nullptr) *status = reply.status;
    return value<uroce_handle>(reply).handle;
  }
  std::vector<uroce_cqe> poll() {
    std::vector<uroce_cqe> out;
    while (const uroce_cqe* entry = cq.ring.peek()) {
      out.push_back(*entry);
      cq.ring.pop();
    }
    cq.ring.publish();
    return out;
  }

  std::uint32_t pd = 0, key = 0;
  ClientCq cq;
  std::byte* data = nullptr;
};

/// The process runs su, with root's rights.
bool is_su(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  bool named = false;
  for (std::string line; std::getline(status, line);) {
    named |= line == "Name:\tsu";
    if (line.starts_with("CapEff:")) return named && std::strtoull(line.c_str() + 7, nullptr, 16) != 0;
  }
  return false;
}

/// A client may execute su after it connected, while another process of the user keeps the socket.
TEST(Privilege, OfAProgramWithMoreRightsThanItsUserIsLentToNobody) {
  if (!may_use_raw_packets(self())) GTEST_SKIP() << "takes root, to become nobody; run as root";
  constexpr uid_t kNobody = 65534;
  int input[2];
  ASSERT_EQ(::pipe(input), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(input[0], 0);  // it waits for a password
    if (::setgid(kNobody) == 0 && ::setuid(kNobody) == 0) ::execl("/bin/su", "su", nullptr);
    ::_exit(1);
  }
  const Peer peer{child, kNobody, UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)))};
  bool ready = false;
  for (int tries = 0; tries < 1000 && !ready; ++tries) {
    ::usleep(2000);
    ready = is_su(child);
  }
  const bool lent = may_use_raw_packets(peer);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(input[0]);
  ::close(input[1]);
  if (!ready) GTEST_SKIP() << "su gets no rights here: not setuid root, or no_new_privs";
  EXPECT_FALSE(lent);
}

class RawPacketTest : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  void SetUp() override {
    if (!may_use_raw_packets(self())) GTEST_SKIP() << "takes CAP_NET_RAW: run as root; without, RawPackets runs";
    client = std::make_unique<RawClient>(*daemon.conductor);
    daemon.cores[0]->touch_link();
    daemon.settle();  // the port announces its address
  }

  /// A frame to this port with an unused EtherType and `mark` in it, at the beginning of the memory.
  void put_frame(std::uint8_t mark, std::uint16_t type = 0x88b5, std::uint8_t to = 1) {
    std::byte* frame = client->data;
    std::memset(frame, mark, kFrame);
    const std::uint8_t head[14] = {
        2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, 9, static_cast<std::uint8_t>(type >> 8), static_cast<std::uint8_t>(type)};
    std::memcpy(frame, head, sizeof head);
  }
  void send(ClientQp& qp) {
    uroce_sq_entry entry{};
    entry.opcode = UROCE_WR_SEND;
    entry.num_sge = 1;
    const uroce_sge list = client->sge(0, kFrame);
    qp.post_send(entry, {&list, 1});
    daemon.settle();
  }
  void post_receive(ClientQp& qp, std::uint64_t wr_id, std::uint64_t offset) {
    const uroce_sge list = client->sge(offset, 2048);
    qp.post_recv(wr_id, {&list, 1});
  }

  TestDaemon daemon{test_config(), GetParam()};
  std::unique_ptr<RawClient> client;
};

TEST_P(RawPacketTest, AFrameGoesWhereAFlowSaysAndLeavesWithIt) {
  ClientQp qp = client->make(kRaw);
  EXPECT_EQ(qp.made.worker, 0u) << "the worker that receives frames that are not RoCE";
  post_receive(qp, 1, 8192);
  post_receive(qp, 2, 16384);
  put_frame(0x77);
  send(qp);
  EXPECT_TRUE(client->poll().empty()) << "no flow, no frame";

  auto request = client->flow_to(qp.made.handle);
  request.value.ether_type = __builtin_bswap16(0x88b5);
  request.mask.ether_type = 0xffff;
  request.flags = UROCE_FLOW_TAG;
  request.tag = 99;
  const std::uint32_t flow = client->add(request);
  ASSERT_NE(flow, 0u);
  EXPECT_EQ(client->destroy(UROCE_CMD_DESTROY_QP, qp.made.handle), EBUSY);
  send(qp);
  const auto got = client->poll();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].wr_id, 1u);
  EXPECT_EQ(got[0].byte_len, kFrame);
  EXPECT_EQ(got[0].flow_tag, 99u);
  EXPECT_EQ(std::memcmp(client->data, client->data + 8192, kFrame), 0);

  put_frame(0x77, 0x88b6);
  send(qp);
  EXPECT_TRUE(client->poll().empty()) << "another EtherType";
  EXPECT_EQ(client->destroy(UROCE_CMD_DESTROY_FLOW, flow), 0);
  put_frame(0x77);
  send(qp);
  EXPECT_TRUE(client->poll().empty());
  EXPECT_EQ(client->destroy(UROCE_CMD_DESTROY_QP, qp.made.handle), 0);
}

TEST_P(RawPacketTest, WhatIsNoPacketOfOursGoesToFlows) {
  ClientQp qp = client->make(kRaw);
  auto request = client->flow_to(qp.made.handle);
  request.type = UROCE_FLOW_ALL_DEFAULT;
  ASSERT_NE(client->add(request), 0u);
  const auto arrives = [&](std::uint8_t flags, std::uint8_t offset, std::uint16_t port) {
    put_frame(0, 0x0800);
    wire::Ipv4Header ip;
    ip.protocol = 17;
    ip.fragment = static_cast<std::uint16_t>(flags << 8 | offset);
    ip.total_length = kFrame - 14;
    ip.source = {10, 0, 0, 8}, ip.dest = {10, 0, 0, 9};
    ip.emit(client->data + 14);
    wire::store16(client->data + 36, port);
    post_receive(qp, 1, 8192);
    send(qp);
    return client->poll().size() == 1;
  };
  EXPECT_TRUE(arrives(0, 0, 9));
  EXPECT_TRUE(arrives(0x20, 0, 9)) << "the first fragment";
  EXPECT_TRUE(arrives(0, 8, 9)) << "a later one";
  EXPECT_TRUE(arrives(0, 0, wire::kRoceUdpPort)) << "RoCE's port, but not RoCE";
}

TEST_P(RawPacketTest, DamagedRoceReachesFlowsAndNotTheTransport) {
  ClientQp qp = client->make(kRaw);
  auto request = client->flow_to(qp.made.handle);
  request.type = UROCE_FLOW_ALL_DEFAULT;
  ASSERT_NE(client->add(request), 0u);
  put_frame(0, 0x0800);
  wire::Ipv4Header ip;
  ip.total_length = 20 + 8 + 12 + 4;
  ip.source = {192, 0, 2, 9}, ip.dest = {192, 0, 2, 1};
  ip.checksum = ip.right_checksum();
  ip.emit(client->data + 14);
  wire::store16(client->data + 36, wire::kRoceUdpPort);
  wire::store16(client->data + 38, 8 + 12 + 4);
  client->data[42] = std::byte{0x04};  // RC SEND only, with an ICRC of 0
  post_receive(qp, 1, 8192);
  daemon.devices.back().inject({client->data, kFrame});
  daemon.settle();
  EXPECT_EQ(client->poll().size(), 1u);
  for (const auto& core : daemon.cores) {
    EXPECT_EQ(core->transport().counters().rcvd_pkts + core->transport().counters().drop_no_qp, 0u);
  }
}

TEST_P(RawPacketTest, CountersCountAndFramesSpreadOverWorkQueues) {
  ClientQp sender = client->make(kRaw);
  uroce_create_rss_request request{};
  request.count = 4;
  std::vector<ClientQp> wqs;
  for (int i = 0; i < 2; ++i) {
    wqs.push_back(client->make(UROCE_QPT_WQ));
    EXPECT_EQ(wqs.back().made.sq_entries, 0u);
  }
  for (std::uint32_t i = 0; i < 4; ++i) request.wq[i] = wqs[i % 2].made.handle;
  request.fields = UROCE_RSS_SRC_IPV4 | UROCE_RSS_DST_IPV4;
  std::ranges::fill(request.key, 0x6d);
  const auto rss = TestClient::value<uroce_create_rss_response>(client->send(UROCE_CMD_CREATE_RSS, request));
  ASSERT_NE(rss.handle, 0u);
  EXPECT_EQ(client->destroy(UROCE_CMD_DESTROY_QP, wqs[0].made.handle), EBUSY);

  const auto counters =
      TestClient::value<uroce_handle>(client->send(UROCE_CMD_CREATE_COUNTERS, std::span<const std::byte>{}));
  auto all = client->flow_to(rss.handle);
  all.type = UROCE_FLOW_ALL_DEFAULT;
  all.flags = UROCE_FLOW_TO_RSS;
  all.counters = counters.handle;
  const std::uint32_t flow = client->add(all);
  ASSERT_NE(flow, 0u);
  EXPECT_EQ(client->destroy(UROCE_CMD_DESTROY_RSS, rss.handle), EBUSY);
  EXPECT_EQ(client->destroy(UROCE_CMD_DESTROY_COUNTERS, counters.handle), EBUSY);

  for (ClientQp& wq : wqs) post_receive(wq, wq.made.qpn, 8192);
  put_frame(1);  // has no addresses to hash: the first entry's
  send(sender);
  const auto got = client->poll();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].wr_id, wqs[0].made.qpn);
  const auto count =
      TestClient::value<uroce_read_counters_response>(client->send(UROCE_CMD_READ_COUNTERS, counters));
  EXPECT_EQ(count.packets, 1u);
  EXPECT_EQ(count.bytes, kFrame);

  EXPECT_EQ(client->destroy(UROCE_CMD_DESTROY_FLOW, flow), 0);
  EXPECT_EQ(client->destroy(UROCE_CMD_DESTROY_RSS, rss.handle), 0);
  EXPECT_EQ(client->destroy(UROCE_CMD_DESTROY_COUNTERS, counters.handle), 0);
  EXPECT_EQ(client->destroy(UROCE_CMD_DESTROY_QP, wqs[0].made.handle), 0);
}

TEST_P(RawPacketTest, WhatNoFlowKeepsReachesTheDefaultsThoseOfGroupsFirst) {
  ClientQp group = client->make(kRaw), rest = client->make(kRaw);
  post_receive(group, 1, 8192);
  post_receive(rest, 2, 16384);
  auto request = client->flow_to(group.made.handle);
  request.type = UROCE_FLOW_MC_DEFAULT;
  ASSERT_NE(client->add(request), 0u);
  request = client->flow_to(rest.made.handle);
  request.type = UROCE_FLOW_ALL_DEFAULT;
  ASSERT_NE(client->add(request), 0u);
  put_frame(0x55);
  client->data[0] |= std::byte{1};  // a group's address
  send(rest);
  auto got = client->poll();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].wr_id, 1u);
  put_frame(0x55);
  send(rest);
  got = client->poll();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].wr_id, 2u);
}

TEST_P(RawPacketTest, WhatAQpSendsToAGroupReachesItselfUnlessItsFlagForbids) {
  ClientQp blocked = client->make(kRaw, UROCE_QP_BLOCK_OWN_MULTICAST), other = client->make(kRaw);
  for (ClientQp* const qp : {&blocked, &other}) {
    for (std::uint64_t i = 0; i < 4; ++i) post_receive(*qp, qp->made.qpn, 8192 + i * 2048);
    auto request = client->flow_to(qp->made.handle);
    request.value.ether_type = __builtin_bswap16(0x88b5);
    request.mask.ether_type = 0xffff;
    ASSERT_NE(client->add(request), 0u);
  }
  put_frame(0x55);
  client->data[0] |= std::byte{1};
  send(blocked);
  const auto got = client->poll();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].wr_id, other.made.qpn);
  send(other);
  EXPECT_EQ(client->poll().size(), 2u) << "what others send arrives";
  put_frame(0x55);
  send(blocked);
  EXPECT_EQ(client->poll().size(), 2u) << "to the port's own address";
}

TEST_P(RawPacketTest, ASnifferSeesTheChecksumThatThePortFillsIn) {
  ClientQp sniffer = client->make(kRaw);
  auto request = client->flow_to(sniffer.made.handle);
  request.type = UROCE_FLOW_SNIFFER;
  ASSERT_NE(client->add(request), 0u);
  post_receive(sniffer, 1, 8192);
  put_frame(0, 0x0800);
  wire::Ipv4Header ip;
  ip.total_length = kFrame - 14;
  ip.emit(client->data + 14);
  const base::Frame frame{client->data, kFrame, kFrame, base::kIpChecksumNeeded, 0, nullptr};
  daemon.cores[0]->sniff({&frame, 1}, 0);
  ASSERT_EQ(client->poll().size(), 1u);
  EXPECT_EQ(wire::Ipv4Header::parse(client->data + 8192 + 14).checksum, ip.right_checksum());
}

TEST_P(RawPacketTest, ASnifferSeesWhatIsSentAndWhatIsReceived) {
  ClientQp sniffer = client->make(kRaw), sender = client->make(kRaw);
  auto request = client->flow_to(sniffer.made.handle);
  request.type = UROCE_FLOW_SNIFFER;
  ASSERT_NE(client->add(request), 0u);
  for (std::uint64_t i = 0; i < 4; ++i) post_receive(sniffer, i, 8192 + i * 4096);
  put_frame(3);
  send(sender);
  const auto got = client->poll();
  ASSERT_EQ(got.size(), 2u) << "the frame left, and came back";
  EXPECT_EQ(std::memcmp(client->data, client->data + 8192, kFrame), 0);
  EXPECT_EQ(std::memcmp(client->data, client->data + 12288, kFrame), 0);
  daemon.devices.back().inject({client->data, kFrame});
  daemon.settle();
  EXPECT_EQ(client->poll().size(), 1u) << "whichever worker receives it";
}

TEST_P(RawPacketTest, AFrameThatAnyWorkerReceivesReachesItsFlow) {
  ClientQp qp = client->make(kRaw);
  auto request = client->flow_to(qp.made.handle);
  request.type = UROCE_FLOW_ALL_DEFAULT;
  ASSERT_NE(client->add(request), 0u);
  post_receive(qp, 1, 8192);
  put_frame(5);
  daemon.devices.back().inject({client->data, kFrame});
  daemon.settle();
  const auto got = client->poll();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(std::memcmp(client->data, client->data + 8192, kFrame), 0);
}

TEST_P(RawPacketTest, WhatAClientLeavesBehindIsGoneWithIt) {
  ClientQp qp = client->make(kRaw);
  auto request = client->flow_to(qp.made.handle);
  request.type = UROCE_FLOW_ALL_DEFAULT;
  for (int i = 0; i < 100; ++i) ASSERT_NE(client->add(request), 0u);
  EXPECT_TRUE(daemon.shared.any_flows);
  EXPECT_EQ(daemon.devices[0].filter(), net::RxFilter::kPromiscuous);
  client->close();
  EXPECT_FALSE(daemon.shared.any_flows);
  EXPECT_EQ(daemon.devices[0].filter(), net::RxFilter::kRoceOnly);
  // The table holds 4096 flows: had any remained, the last one would not fit.
  RawClient next(*daemon.conductor);
  ClientQp other = next.make(kRaw);
  int status = 0;
  for (std::size_t i = 0; i < net::FlowTable::kMaxFlows; ++i) next.add(next.flow_to(other.made.handle), &status);
  EXPECT_EQ(status, 0);
  next.add(next.flow_to(other.made.handle), &status);
  EXPECT_EQ(status, ENOMEM);
}

TEST_P(RawPacketTest, RequestsThatMakeNoSenseAreRefused) {
  ClientQp qp = client->make(kRaw), wq = client->make(UROCE_QPT_WQ);
  int status = 0;
  const auto refused = [&](auto change) {
    auto request = client->flow_to(qp.made.handle);
    change(request);
    client->add(request, &status);
    return status;
  };
  EXPECT_EQ(refused([](auto& r) { r.type = 4; }), EOPNOTSUPP);
  EXPECT_EQ(refused([](auto& r) { r.flags = 16; }), EINVAL);
  EXPECT_EQ(refused([](auto& r) { r.priority = 65536; }), EINVAL);
  EXPECT_EQ(refused([](auto& r) { r.counters = 5; }), EINVAL);
  EXPECT_EQ(refused([](auto& r) { r.qp = 12345; }), EINVAL);
  EXPECT_EQ(refused([&](auto& r) { r.qp = wq.made.handle; }), EINVAL) << "frames reach it through RSS";
  EXPECT_EQ(refused([](auto& r) { r.flags = UROCE_FLOW_TO_RSS; }), EINVAL);
  EXPECT_EQ(refused([](auto& r) {
              r.type = UROCE_FLOW_ALL_DEFAULT;
              r.mask.protocol = 1;
            }),
            EINVAL);
  EXPECT_EQ(refused([](auto& r) {
              r.type = UROCE_FLOW_SNIFFER;
              r.flags = UROCE_FLOW_DROP;
            }),
            EINVAL);
  const auto qp_refused = [&](std::uint32_t type, auto change) {
    auto request = client->request(type);
    change(request);
    client->create_qp(request, &status);
    return status;
  };
  EXPECT_EQ(qp_refused(kRc, [](auto& r) { r.max_tso_header = 64; }), EINVAL);
  EXPECT_EQ(qp_refused(kRaw, [](auto& r) { r.max_tso_header = UROCE_MAX_TSO_HEADER + 1; }), EINVAL);
  EXPECT_EQ(qp_refused(kRc, [](auto& r) { r.flags = UROCE_QP_STRIP_VLAN; }), EINVAL);
  EXPECT_EQ(qp_refused(UROCE_QPT_WQ, [](auto& r) { r.max_send_wr = 1; }), EINVAL);
  EXPECT_EQ(qp_refused(UROCE_QPT_WQ, [](auto& r) { r.recv_cq = 0; }), EINVAL);
  uroce_create_rss_request rss{};
  const auto rss_refused = [&] { return client->send(UROCE_CMD_CREATE_RSS, rss).status; };
  rss.wq[0] = rss.wq[1] = rss.wq[2] = wq.made.handle;
  EXPECT_EQ(rss_refused(), EINVAL) << "no entries";
  rss.count = 3;
  EXPECT_EQ(rss_refused(), EINVAL);
  rss.count = 256;
  EXPECT_EQ(rss_refused(), EINVAL);
  rss.count = 2;
  rss.fields = 256;
  EXPECT_EQ(rss_refused(), EOPNOTSUPP);
  rss.fields = 0;
  rss.wq[1] = qp.made.handle;
  EXPECT_EQ(rss_refused(), EINVAL) << "a QP is not a WQ";
}

TEST_P(RawPacketTest, FlowsAreShown) {
  ClientQp qp = client->make(kRaw);
  auto request = client->flow_to(qp.made.handle);
  request.priority = 3;
  request.flags = UROCE_FLOW_DONT_TRAP | UROCE_FLOW_TAG;
  request.value.ether_type = __builtin_bswap16(0x0806);
  request.mask.ether_type = 0xffff;
  request.value.vlan_tag = __builtin_bswap16(5);
  request.mask.vlan_tag = __builtin_bswap16(0x0fff);
  request.counters =
      TestClient::value<uroce_handle>(client->send(UROCE_CMD_CREATE_COUNTERS, std::span<const std::byte>{})).handle;
  ASSERT_NE(client->add(request), 0u);
  const auto answer = nlohmann::json::parse(
      admin::handle_query(daemon.conductor->admin(), client->session(), R"({"command":"show","what":"flows"})"));
  ASSERT_EQ(answer["flows"].size(), 1u);
  const auto& flow = answer["flows"][0];
  EXPECT_EQ(flow["type"], "NORMAL");
  EXPECT_EQ(flow["priority"], 3);
  EXPECT_EQ(flow["flags"], "dont_trap tag");
  EXPECT_EQ(flow["match"], "ether_type=0806 vlan_tag=0005/0fff");
  EXPECT_EQ(flow["packets"], 0);
}

class RawPackets : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(RawPackets, AreOnlyForProcessesWithTheCapability) {
  TestDaemon daemon(test_config(), GetParam());
  TestClient other(*daemon.conductor, Peer{::getpid(), ::geteuid(), UniqueFd()});  // whose process isn't known
  other.hello();
  const std::uint32_t pd = other.alloc_pd();
  const ClientCq cq = other.create_cq(8);
  auto request = TestClient::qp_request(pd, cq.made.handle);
  request.type = kRaw;
  int status = 0;
  other.create_qp(request, &status);
  EXPECT_EQ(status, EPERM);
  EXPECT_EQ(other.send(UROCE_CMD_CREATE_FLOW, uroce_create_flow_request{}).status, EPERM);
  uroce_create_rss_request rss{};
  rss.count = 1;
  EXPECT_EQ(other.send(UROCE_CMD_CREATE_RSS, rss).status, EPERM);
}

INSTANTIATE_TEST_SUITE_P(Workers, RawPacketTest, ::testing::Values(1, 2));
INSTANTIATE_TEST_SUITE_P(Workers, RawPackets, ::testing::Values(1, 2));

TEST(Privilege, IsOfTheLivingAndTheCapable) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  Peer gone{child, 0, UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)))};
  siginfo_t info;
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(may_use_raw_packets(gone));
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(may_use_raw_packets(gone));
  EXPECT_FALSE(may_use_raw_packets(Peer{::getpid(), 0, UniqueFd()}));
}

}  // namespace
}  // namespace uroce::daemon::testing
