// QPs that are not RC, over the whole path on one thread: UD with address handles and groups, UC, SRQs, XRC.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "control/state/worker_commands.h"
#include "test_client.h"
#include "test_daemon.h"

namespace uroce::daemon::testing {

using control::Reply;

namespace {

constexpr std::uint64_t kBase = 0x7000000;
constexpr std::uint32_t kUc = 3, kXrcSend = 9, kXrcRecv = 10;
constexpr std::uint32_t kQkey = 0x1234;

class DatagramTest : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  void SetUp() override {
    client.hello();
    pd = client.alloc_pd();
    cq = client.create_cq(64);
    const Reply mr = client.reg_mr(pd, kBase, 65536, 0xf, data);
    key = TestClient::value<uroce_reg_mr_response>(mr).lkey;
  }
  uroce_create_qp_request request(std::uint32_t type) const {
    auto request = TestClient::qp_request(pd, cq.made.handle);
    request.type = type;
    return request;
  }
  int modify(const ClientQp& qp, std::uint32_t state, std::uint32_t mask, std::uint32_t dest = 0) {
    uroce_modify_qp_request request{};
    request.handle = qp.made.handle;
    request.mask = proto::kAttrState | mask;
    uroce_qp_attr& attr = request.attr;
    attr.state = state;
    attr.port = 1;
    attr.qkey = kQkey;
    attr.access_flags = 0xf;
    attr.path_mtu = 3;
    attr.dest_qpn = dest;
    attr.timeout = 14, attr.retry_cnt = attr.rnr_retry = 7;
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 1;
    attr.av = av(ipv4(1));
    return client.send(UROCE_CMD_MODIFY_QP, request).status;
  }
  static uroce_av av(const wire::Address& to) {
    uroce_av av{};
    av.is_global = av.port_num = av.hop_limit = 1;
    std::memcpy(av.dgid, to.bytes.data(), 16);
    return av;
  }
  void start_ud(const ClientQp& qp) {
    ASSERT_EQ(modify(qp, 1, proto::kAttrPkeyIndex | proto::kAttrPort | proto::kAttrQkey), 0);
    ASSERT_EQ(modify(qp, 2, 0), 0);
    ASSERT_EQ(modify(qp, 3, proto::kAttrSqPsn), 0);
  }
  int start_connected(const ClientQp& qp, std::uint32_t dest, bool reliable) {
    const std::uint32_t rtr = proto::kAttrAv | proto::kAttrPathMtu | proto::kAttrDestQpn | proto::kAttrRqPsn;
    const std::uint32_t rc_rtr = proto::kAttrMaxDestRdAtomic | proto::kAttrMinRnrTimer;
    const std::uint32_t rc_rts =
        proto::kAttrTimeout | proto::kAttrRetryCnt | proto::kAttrRnrRetry | proto::kAttrMaxRdAtomic;
    int error = modify(qp, 1, proto::kAttrPkeyIndex | proto::kAttrPort | proto::kAttrAccessFlags);
    if (error == 0) error = modify(qp, 2, rtr | (reliable ? rc_rtr : 0), dest);
    return error != 0 ? error : modify(qp, 3, proto::kAttrSqPsn | (reliable ? rc_rts : 0));
  }
  int start_xrc(const ClientQp& initiator, const ClientQp& target) {
    constexpr std::uint32_t kInit = proto::kAttrPkeyIndex | proto::kAttrPort | proto::kAttrAccessFlags;
    constexpr std::uint32_t kRtr = proto::kAttrAv | proto::kAttrPathMtu | proto::kAttrDestQpn | proto::kAttrRqPsn;
    constexpr std::uint32_t kRts = proto::kAttrTimeout | proto::kAttrRetryCnt | proto::kAttrRnrRetry |
                                   proto::kAttrSqPsn | proto::kAttrMaxRdAtomic;
    constexpr std::uint32_t kResponds = proto::kAttrMaxDestRdAtomic | proto::kAttrMinRnrTimer;
    int error = modify(target, 1, kInit);
    if (error == 0) error = modify(target, 2, kRtr | kResponds, initiator.made.qpn);
    if (error == 0) error = modify(initiator, 1, kInit);
    if (error == 0) error = modify(initiator, 2, kRtr, target.made.qpn);
    return error == 0 ? modify(initiator, 3, kRts) : error;
  }
  std::uint32_t create_ah(const wire::Address& to) {
    uroce_create_ah_request request{};
    request.pd = pd;
    request.av = av(to);
    return TestClient::value<uroce_handle>(client.send(UROCE_CMD_CREATE_AH, request)).handle;
  }
  uroce_sge sge(std::size_t offset, std::uint32_t bytes) const { return {kBase + offset, bytes, key}; }
  static uroce_sq_entry send_entry() {
    uroce_sq_entry entry{};
    entry.opcode = UROCE_WR_SEND;
    entry.flags = UROCE_SEND_SIGNALED;
    entry.num_sge = 1;
    return entry;
  }
  void send_ud(ClientQp& qp, std::uint32_t ah, std::uint32_t qpn, std::uint32_t bytes, std::uint32_t qkey = kQkey) {
    uroce_sq_entry entry = send_entry();
    entry.ah = ah;
    entry.ud = {qpn, qkey};
    const uroce_sge from = sge(0, bytes);
    qp.post_send(entry, std::span(&from, 1));
  }
  /// Completions, until there are `count`.
  std::vector<uroce_cqe> collect(std::size_t count) {
    std::vector<uroce_cqe> all;
    daemon.run_until([&] {
      while (const uroce_cqe* e = cq.ring.peek()) {
        all.push_back(*e);
        cq.ring.pop();
      }
      cq.ring.publish();
      return all.size() >= count;
    });
    return all;
  }
  static std::size_t receives(const std::vector<uroce_cqe>& all) {
    std::size_t count = 0;
    for (const uroce_cqe& cqe : all) count += cqe.opcode == UROCE_WC_RECV && cqe.status == UROCE_WC_SUCCESS;
    return count;
  }
  uroce_create_srq_response create_srq(std::uint32_t xrcd = 0) {
    uroce_create_srq_request request{};
    request.pd = pd;
    request.max_wr = 16;
    request.max_sge = 1;
    if (xrcd != 0) request.type = 1, request.xrcd = xrcd, request.cq = cq.made.handle;
    Reply reply = client.send(UROCE_CMD_CREATE_SRQ, request);
    EXPECT_EQ(reply.status, 0);
    const auto made = TestClient::value<uroce_create_srq_response>(reply);
    client.map(made.chunks, reply);
    return made;
  }
  void post_srq(const uroce_create_srq_response& srq, std::uint64_t wr_id, const uroce_sge& to) {
    auto* line = client.at<uroce_producer_line>(srq.client);
    std::byte* slot = client.at<std::byte>(srq.ring) + (line->index & (srq.entries - 1)) * srq.stride;
    const uroce_rq_entry entry{wr_id, 1, 0};
    std::memcpy(slot, &entry, sizeof(entry));
    std::memcpy(slot + sizeof(entry), &to, sizeof(to));
    ++line->index;
  }

  TestDaemon daemon{test_config(), GetParam()};
  TestClient client{*daemon.conductor};
  std::uint32_t pd = 0, key = 0;
  ClientCq cq;
  std::byte* data = nullptr;
};

TEST_P(DatagramTest, AUdMessageFindsItsWayByAddressHandle) {
  ClientQp a = client.create_qp(request(kUd)), b = client.create_qp(request(kUd));
  start_ud(a);
  start_ud(b);
  const std::uint32_t ah = create_ah(ipv4(1));
  ASSERT_NE(ah, 0u);
  std::memcpy(data, "datagram", 8);
  const uroce_sge to = sge(4096, 200);
  b.post_recv(9, std::span(&to, 1));
  send_ud(a, ah, b.made.qpn, 8);
  const auto all = collect(2);
  ASSERT_EQ(receives(all), 1u);
  for (const uroce_cqe& cqe : all) {
    if (cqe.opcode != UROCE_WC_RECV) continue;
    EXPECT_EQ(cqe.byte_len, 48u);
    EXPECT_EQ(cqe.src_qp, a.made.qpn);
    EXPECT_EQ(cqe.wc_flags & UROCE_WC_GRH, UROCE_WC_GRH);
  }
  EXPECT_EQ(std::memcmp(data + 4096 + 40, "datagram", 8), 0);
  EXPECT_EQ(data[4096 + 20], std::byte{0x45});
}

TEST_P(DatagramTest, ThePortCountsDatagramsWithAnotherQkey) {
  std::vector<ClientQp> receivers;  // on each worker
  for (std::uint32_t i = 0; i < GetParam(); ++i) receivers.push_back(client.create_qp(request(kUd)));
  ClientQp sender = client.create_qp(request(kUd));
  for (const ClientQp& qp : receivers) start_ud(qp);
  start_ud(sender);
  const std::uint32_t ah = create_ah(ipv4(1));
  for (const ClientQp& qp : receivers) send_ud(sender, ah, qp.made.qpn, 8, kQkey + 1);
  EXPECT_EQ(collect(receivers.size()).size(), receivers.size());
  daemon.settle();
  const Reply reply = client.send(UROCE_CMD_QUERY_PORT, std::span<const std::byte>{});
  const auto port = TestClient::value<uroce_port_response>(reply);
  EXPECT_EQ(port.bad_qkeys, receivers.size());
  EXPECT_EQ(port.bad_pkeys, 0u);
}

TEST_P(DatagramTest, AWorkerNoticesThatReceivesAreMissing) {
  ClientQp a = client.create_qp(request(kUd));
  start_ud(a);
  const std::uint32_t ah = create_ah(ipv4(1));
  const auto noticed = [&] {
    return std::ranges::count_if(daemon.cores, [](auto& core) { return core->take_rnr_drops(); });
  };
  EXPECT_EQ(noticed(), 0);
  send_ud(a, ah, a.made.qpn, 8);
  collect(1);
  daemon.settle();
  EXPECT_EQ(noticed(), 1);
  EXPECT_EQ(noticed(), 0);
}

TEST_P(DatagramTest, AnAddressHandleServesItsPdOnlyAndGoesWithItsSession) {
  ClientQp a = client.create_qp(request(kUd));
  start_ud(a);
  TestClient other(*daemon.conductor);
  other.hello();
  uroce_create_ah_request ah{};
  ah.pd = other.alloc_pd();
  ah.av = av(ipv4(1));
  const std::uint32_t foreign = TestClient::value<uroce_handle>(other.send(UROCE_CMD_CREATE_AH, ah)).handle;
  ASSERT_NE(foreign, 0u);
  EXPECT_EQ(client.destroy(UROCE_CMD_DESTROY_AH, foreign), ENOENT);
  send_ud(a, foreign, a.made.qpn, 8);
  const auto all = collect(1);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].status, UROCE_WC_LOC_QP_OP_ERR);
  EXPECT_EQ(other.destroy(UROCE_CMD_DEALLOC_PD, ah.pd), EBUSY);
  EXPECT_EQ(other.destroy(UROCE_CMD_DESTROY_AH, foreign), 0);
  EXPECT_EQ(other.destroy(UROCE_CMD_DEALLOC_PD, ah.pd), 0);
}

TEST_P(DatagramTest, WhatIsPostedBeforeTheAddressHandleIsDestroyedIsSent) {
  ClientQp a = client.create_qp(request(kUd)), idle = client.create_qp(request(kUd));
  start_ud(a);
  start_ud(idle);
  const std::uint32_t ah = create_ah(ipv4(1));
  constexpr std::size_t kCount = 10;
  for (std::size_t i = 0; i < kCount; ++i) send_ud(a, ah, a.made.qpn, 8);
  EXPECT_EQ(client.destroy(UROCE_CMD_DESTROY_AH, ah), 0) << "the client does not wait";
  EXPECT_EQ(client.destroy(UROCE_CMD_DESTROY_AH, ah), ENOENT);
  EXPECT_EQ(client.session().ahs.size(), 1u);
  const auto all = collect(kCount);
  ASSERT_EQ(all.size(), kCount);
  for (const uroce_cqe& cqe : all) EXPECT_EQ(cqe.status, UROCE_WC_SUCCESS);
  daemon.conductor->take_worker_events();
  EXPECT_EQ(client.session().ahs.size(), 0u);
  // Datagrams that are posted after that do not find it.
  send_ud(a, ah, a.made.qpn, 8);
  EXPECT_EQ(collect(1).at(0).status, UROCE_WC_LOC_QP_OP_ERR);
}

class QueuedDatagrams : public DatagramTest {
 protected:
  static constexpr std::size_t kMoreThanTheWorkerHolds = 100;

  ClientQp queue_many(std::uint32_t ah) {
    auto wide = request(kUd);
    wide.max_send_wr = kMoreThanTheWorkerHolds;
    wide.send_cq = client.create_cq(kMoreThanTheWorkerHolds).made.handle;
    ClientQp qp = client.create_qp(wide);
    start_ud(qp);
    for (MemoryDevice& device : daemon.devices) device.set_credit(0);
    for (std::size_t i = 0; i < kMoreThanTheWorkerHolds; ++i) send_ud(qp, ah, qp.made.qpn, 8);
    return qp;
  }
  std::size_t kept() {
    daemon.settle();
    daemon.conductor->take_worker_events();
    return client.session().ahs.size();
  }
};

TEST_P(QueuedDatagrams, KeepADestroyedHandleUntilThePortTakesThem) {
  const std::uint32_t ah = create_ah(ipv4(1));
  const ClientQp qp = queue_many(ah);
  ASSERT_EQ(client.destroy(UROCE_CMD_DESTROY_AH, ah), 0);
  const auto& worker = *daemon.cores[qp.made.worker];
  const std::size_t commands = worker.command_trace().last().size();
  EXPECT_EQ(kept(), 1u);
  EXPECT_EQ(worker.command_trace().last().size(), commands) << "the control thread polls";
  for (MemoryDevice& device : daemon.devices) device.set_credit(1u << 20);
  EXPECT_EQ(kept(), 0u);
}

TEST_P(QueuedDatagrams, KeepNoMoreDestroyedHandlesThanThereAreOfThem) {
  queue_many(create_ah(ipv4(1)));
  for (std::size_t i = 0; i < 3 * kMoreThanTheWorkerHolds; ++i) {
    ASSERT_EQ(client.destroy(UROCE_CMD_DESTROY_AH, create_ah(ipv4(1))), 0);
  }
  EXPECT_LE(kept(), kMoreThanTheWorkerHolds + 1);
}

TEST_P(QueuedDatagrams, KeepADestroyedHandleNoLongerThanTheirQp) {
  for (const bool destroy : {false, true}) {
    const std::uint32_t ah = create_ah(ipv4(1));
    const ClientQp qp = queue_many(ah);
    ASSERT_EQ(client.destroy(UROCE_CMD_DESTROY_AH, ah), 0);
    EXPECT_EQ(kept(), 1u);
    if (destroy) {
      EXPECT_EQ(client.destroy(UROCE_CMD_DESTROY_QP, qp.made.handle), 0);
    } else {
      EXPECT_EQ(modify(qp, static_cast<std::uint32_t>(proto::QpState::kErr), 0), 0);
    }
    EXPECT_EQ(client.session().ahs.size(), 0u);
  }
}

TEST_P(DatagramTest, AGroupsMessageReachesEachMemberOnce) {
  ClientQp sender = client.create_qp(request(kUd));
  start_ud(sender);
  std::vector<ClientQp> members;
  wire::Address group = ipv4(1);
  group.bytes[12] = 239;
  uroce_mcast_request attach{};
  std::memcpy(attach.gid, group.bytes.data(), 16);
  for (int i = 0; i < 4; ++i) {
    members.push_back(client.create_qp(request(kUd)));
    start_ud(members.back());
    attach.qp = members.back().made.handle;
    ASSERT_EQ(client.send(UROCE_CMD_ATTACH_MCAST, attach).status, 0);
    const uroce_sge to = sge(4096 + i * 1024, 200);
    members.back().post_recv(i, std::span(&to, 1));
  }
  // Attaching twice has the effect of attaching once.
  EXPECT_EQ(client.send(UROCE_CMD_ATTACH_MCAST, attach).status, 0);
  EXPECT_EQ(client.destroy(UROCE_CMD_DESTROY_QP, members[3].made.handle), EBUSY);
  EXPECT_EQ(client.send(UROCE_CMD_DETACH_MCAST, attach).status, 0);
  EXPECT_EQ(client.send(UROCE_CMD_DETACH_MCAST, attach).status, EINVAL);
  std::memcpy(data, "group", 5);
  send_ud(sender, create_ah(group), 0xffffff, 5);
  const auto all = collect(4);
  daemon.settle();
  EXPECT_EQ(receives(all), 3u);
  EXPECT_EQ(cq.ring.peek(), nullptr);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(std::memcmp(data + 4096 + i * 1024 + 40, "group", 5), 0);
}

TEST_P(DatagramTest, GroupsAreForUdQpsAndGroupAddresses) {
  const ClientQp rc = client.create_qp(request(2)), ud = client.create_qp(request(kUd));
  uroce_mcast_request attach{};
  wire::Address group = ipv4(1);
  std::memcpy(attach.gid, group.bytes.data(), 16);
  attach.qp = ud.made.handle;
  EXPECT_EQ(client.send(UROCE_CMD_ATTACH_MCAST, attach).status, EINVAL);
  attach.gid[12] = 239;
  attach.qp = rc.made.handle;
  EXPECT_EQ(client.send(UROCE_CMD_ATTACH_MCAST, attach).status, EINVAL);
}

TEST_P(DatagramTest, AUcSendArrives) {
  ClientQp a = client.create_qp(request(kUc)), b = client.create_qp(request(kUc));
  ASSERT_EQ(start_connected(a, b.made.qpn, false), 0);
  ASSERT_EQ(start_connected(b, a.made.qpn, false), 0);
  for (int i = 0; i < 5000; ++i) data[i] = static_cast<std::byte>(i);
  const uroce_sge to = sge(8192, 8000), from = sge(0, 5000);
  b.post_recv(1, std::span(&to, 1));
  a.post_send(send_entry(), std::span(&from, 1));
  EXPECT_EQ(receives(collect(2)), 1u);
  EXPECT_EQ(std::memcmp(data, data + 8192, 5000), 0);
}

TEST_P(DatagramTest, QpsOfAllWorkersReceiveFromOneSrq) {
  const auto srq = create_srq();
  std::vector<ClientQp> from, to;
  auto with_srq = request(2);
  with_srq.srq = srq.handle;
  for (int i = 0; i < 4; ++i) {
    from.push_back(client.create_qp(request(2)));
    to.push_back(client.create_qp(with_srq));
    EXPECT_EQ(to.back().made.rq_entries, 0u);
    ASSERT_EQ(start_connected(from.back(), to.back().made.qpn, true), 0);
    ASSERT_EQ(start_connected(to.back(), from.back().made.qpn, true), 0);
  }
  EXPECT_EQ(client.destroy(UROCE_CMD_DESTROY_SRQ, srq.handle), EBUSY);
  for (int i = 0; i < 12; ++i) post_srq(srq, i, sge(4096 + i * 64, 64));
  const uroce_sge source = sge(0, 32);
  for (int i = 0; i < 12; ++i) from[i % 4].post_send(send_entry(), std::span(&source, 1));
  EXPECT_EQ(receives(collect(24)), 12u);
  EXPECT_EQ(client.at<uroce_srq_daemon_block>(srq.daemon)->consumer, 12u);
}

TEST_P(DatagramTest, AnXrcTargetServesWhoeverOpensIt) {
  UniqueFd file(::memfd_create("domain", MFD_CLOEXEC));
  const auto open_domain = [&](TestClient& by) {
    std::vector<UniqueFd> fds;
    fds.emplace_back(::dup(file.get()));
    return TestClient::value<uroce_handle>(
               by.send(UROCE_CMD_OPEN_XRCD, uroce_open_xrcd_request{O_CREAT, 0}, std::move(fds)))
        .handle;
  };
  const std::uint32_t xrcd = open_domain(client);
  const auto srq = create_srq(xrcd);
  // Another process creates the target; this one opens it, and it survives its creator.
  auto maker = std::make_unique<TestClient>(*daemon.conductor);
  maker->hello();
  uroce_create_qp_request target_request{};
  target_request.type = kXrcRecv;
  target_request.xrcd = open_domain(*maker);
  int status = 0;
  const ClientQp made = maker->create_qp(target_request, &status);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(made.made.sq_entries, 0u);
  const Reply opened = client.send(UROCE_CMD_OPEN_QP, uroce_open_qp_request{xrcd, made.made.qpn, 5});
  ASSERT_EQ(opened.status, 0);
  EXPECT_EQ(client.send(UROCE_CMD_OPEN_QP, uroce_open_qp_request{xrcd, made.made.qpn ^ 1, 5}).status, EINVAL);
  ClientQp target;
  target.made = TestClient::value<uroce_create_qp_response>(opened);
  EXPECT_EQ(target.made.qpn, made.made.qpn);
  maker.reset();

  auto initiator_request = request(kXrcSend);
  initiator_request.recv_cq = initiator_request.max_recv_wr = initiator_request.max_recv_sge = 0;
  ClientQp initiator = client.create_qp(initiator_request, &status);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(initiator.made.rq_entries, 0u);
  ASSERT_EQ(start_xrc(initiator, target), 0);
  std::memcpy(data, "xrc", 3);
  post_srq(srq, 3, sge(4096, 64));
  uroce_sq_entry entry = send_entry();
  entry.remote_srqn = srq.srqn;
  const uroce_sge from = sge(0, 3);
  initiator.post_send(entry, std::span(&from, 1));
  EXPECT_EQ(receives(collect(2)), 1u);
  EXPECT_EQ(std::memcmp(data + 4096, "xrc", 3), 0);
  EXPECT_EQ(client.destroy(UROCE_CMD_CLOSE_XRCD, xrcd), EBUSY);
  EXPECT_EQ(client.destroy(UROCE_CMD_DESTROY_QP, target.made.handle), 0);
  EXPECT_EQ(client.destroy(UROCE_CMD_DESTROY_SRQ, srq.handle), 0);
  EXPECT_EQ(client.destroy(UROCE_CMD_CLOSE_XRCD, xrcd), 0);
}

TEST_P(DatagramTest, AnSrqThatGoesInTheMiddleOfAMessageLeavesNothingBehind) {
  const std::uint32_t xrcd =
      TestClient::value<uroce_handle>(client.send(UROCE_CMD_OPEN_XRCD, uroce_open_xrcd_request{O_CREAT, 0})).handle;
  const auto srq = create_srq(xrcd);
  uroce_create_qp_request target_request{};
  target_request.type = kXrcRecv;
  target_request.xrcd = xrcd;
  const ClientQp target = client.create_qp(target_request);
  auto initiator_request = request(kXrcSend);
  const ClientCq other_cq = client.create_cq(64);
  initiator_request.send_cq = other_cq.made.handle;
  initiator_request.recv_cq = initiator_request.max_recv_wr = initiator_request.max_recv_sge = 0;
  ClientQp initiator = client.create_qp(initiator_request);
  ASSERT_EQ(start_xrc(initiator, target), 0);
  // One packet of a message of eight has arrived; then the SRQ and its CQ are destroyed, and their numbers reused.
  post_srq(srq, 3, sge(16384, 8192));
  uroce_sq_entry entry = send_entry();
  entry.remote_srqn = srq.srqn;
  const uroce_sge from = sge(0, 8192);
  const std::uint32_t worker = initiator.made.worker;
  daemon.settle();  // the port has announced itself
  daemon.devices[worker].set_credit(1);
  initiator.post_send(entry, std::span(&from, 1));
  daemon.settle();
  ASSERT_EQ(client.at<uroce_srq_daemon_block>(srq.daemon)->consumer, 1u);
  const CqId id = client.session().cqs.find(cq.made.handle)->id;
  ASSERT_EQ(client.destroy(UROCE_CMD_DESTROY_SRQ, srq.handle), 0);
  ASSERT_EQ(client.destroy(UROCE_CMD_DESTROY_CQ, cq.made.handle), 0);
  uroce_cqe ring[16] = {};
  uroce_cq_client_block block{};
  worker::Cq foreign(ring, 16, &block);
  daemon.conductor->state().on_all_workers(control::worker_commands::SetCq{id, &foreign, 99});
  daemon.devices[worker].set_credit(1u << 30);
  daemon.run_until([&] { return other_cq.ring.peek() != nullptr; });
  EXPECT_EQ(client.destroy(UROCE_CMD_DESTROY_QP, target.made.handle), 0);
  EXPECT_EQ(foreign.produced(), 0u);
  daemon.conductor->state().on_all_workers(control::worker_commands::RemoveCq{id, &foreign});
}

TEST_P(DatagramTest, NothingOfAKilledClientRemains) {
  auto victim = std::make_unique<TestClient>(*daemon.conductor);
  victim->hello();
  const std::uint32_t its_pd = victim->alloc_pd();
  const ClientCq its_cq = victim->create_cq(16);
  uroce_create_srq_request srq{};
  srq.pd = its_pd;
  srq.max_wr = 8;
  const auto made = TestClient::value<uroce_create_srq_response>(victim->send(UROCE_CMD_CREATE_SRQ, srq));
  auto qp = TestClient::qp_request(its_pd, its_cq.made.handle);
  qp.type = kUd;
  qp.srq = made.handle;
  ASSERT_NE(victim->create_qp(qp).made.handle, 0u);
  uroce_create_ah_request ah{};
  ah.pd = its_pd;
  ah.av = av(ipv4(1));
  const std::uint32_t number = TestClient::value<uroce_handle>(victim->send(UROCE_CMD_CREATE_AH, ah)).handle;
  ASSERT_NE(number, 0u);
  ASSERT_EQ(victim->send(UROCE_CMD_ALLOC_MW, uroce_alloc_mw_request{its_pd, 2}).status, 0);
  ASSERT_EQ(victim->send(UROCE_CMD_OPEN_XRCD, uroce_open_xrcd_request{O_CREAT, 0}).status, 0);
  const std::uint32_t keys = daemon.memory.size();
  victim.reset();
  EXPECT_EQ(daemon.memory.size(), keys - 1);
  EXPECT_EQ(daemon.conductor->events().srqs(), 0u);
  EXPECT_EQ(daemon.conductor->state().sessions().size(), 1u);
  // Its address handle is valid for no other session, not even with the same PD number.
  ClientQp a = client.create_qp(request(kUd));
  start_ud(a);
  send_ud(a, number, a.made.qpn, 8);
  const auto all = collect(1);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].status, UROCE_WC_LOC_QP_OP_ERR);
}

INSTANTIATE_TEST_SUITE_P(Workers, DatagramTest, ::testing::Values(1u, 3u));
INSTANTIATE_TEST_SUITE_P(Workers, QueuedDatagrams, ::testing::Values(1u, 3u));

}  // namespace
}  // namespace uroce::daemon::testing
