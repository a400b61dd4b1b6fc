// UD: address handles, Q_Keys, the header area, multicast groups; datagrams that do not fit are dropped.
#include "tests/unit/proto/pair.h"
#include "wire/address.h"
#include "wire/bytes.h"
#include "wire/frame_template.h"
#include "wire/network_headers.h"

namespace uroce::proto::test {
namespace {

constexpr std::uint32_t kGrh = 40;

Work datagram(Pair& pair, std::uint32_t bytes, std::uint32_t qkey = 0x1234) {
  Work work{.wr_id = 5, .sges = {pair.a.sge(0, bytes)}};
  work.ud = Datagram{.ah = kPeer.value, .remote_qpn = 0x22, .remote_qkey = qkey};
  return work;
}

class DatagramSizes : public testing::TestWithParam<std::uint32_t> {};

TEST_P(DatagramSizes, ArriveBehindTheHeaderArea) {
  Pair pair = Pair::of(QpType::kUd);
  const std::uint32_t n = GetParam();
  pair.a.fill(0, n, 1);
  pair.b.post_receive(7, {pair.b.sge(100, 20), pair.b.sge(200, kGrh - 20 + n)});
  Work work = datagram(pair, n);
  work.opcode = UROCE_WR_SEND_WITH_IMM;
  work.imm = 0xabcd;
  pair.a.post(work);
  pair.run();
  const auto sent = pair.a.poll();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].status, UROCE_WC_SUCCESS);
  EXPECT_EQ(sent[0].opcode, UROCE_WC_SEND);
  const auto received = pair.b.poll(true);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].wr_id, 7u);
  EXPECT_EQ(received[0].byte_len, kGrh + n);
  EXPECT_EQ(received[0].src_qp, 0x11u);
  EXPECT_EQ(received[0].wc_flags, UROCE_WC_GRH | UROCE_WC_WITH_IMM);
  EXPECT_EQ(received[0].imm_data, 0xabcdu);
  EXPECT_EQ(std::memcmp(pair.b.at(220), pair.a.at(0), n), 0);
  // The IPv4 header is in the last 20 bytes, with a valid checksum.
  std::array<std::byte, 20> ip;
  std::memcpy(ip.data(), pair.b.at(200), 20);
  const wire::Ipv4Header header = wire::Ipv4Header::parse(ip.data());
  EXPECT_EQ(header.header_words, 5);
  EXPECT_EQ(header.source[3], 1);
  EXPECT_EQ(header.dest[3], 2);
  EXPECT_EQ(header.checksum, header.right_checksum());
}

INSTANTIATE_TEST_SUITE_P(Bytes, DatagramSizes, testing::Values(0, 1, 64, 1024, 4095, 4096));

TEST(Datagram, LongerThanThePortsMtuFailsAndTheQueueStopsUntilItIsRestarted) {
  Pair pair = Pair::of(QpType::kUd);
  pair.a.transport->set_port_mtu(1024);
  pair.b.post_receive(1, {pair.b.sge(0, 2000)});
  pair.b.post_receive(2, {pair.b.sge(0, 2000)});
  pair.a.post(datagram(pair, 1025));
  pair.a.post(datagram(pair, 8));
  pair.run();
  auto sent = pair.a.poll();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].status, UROCE_WC_LOC_LEN_ERR);
  EXPECT_EQ(sent[1].status, UROCE_WC_WR_FLUSH_ERR);
  EXPECT_EQ(pair.a.snapshot().state, QpState::kSqe);
  pair.a.post(datagram(pair, 8));
  pair.run();
  sent = pair.a.poll();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].status, UROCE_WC_WR_FLUSH_ERR);
  EXPECT_TRUE(pair.log.empty());

  ASSERT_EQ(pair.a.to(QpState::kRts, pair.now).error, 0);
  pair.a.post(datagram(pair, 1024));
  pair.run();
  EXPECT_EQ(pair.a.poll().at(0).status, UROCE_WC_SUCCESS);
  EXPECT_EQ(pair.b.poll(true).size(), 1u);
}

TEST(Datagram, SendErrorLeavesReceivesAlone) {
  Pair pair = Pair::of(QpType::kUd);
  Work bad = datagram(pair, 8);
  bad.ud->ah = 99;
  pair.b.post_receive(1, {pair.b.sge(0, 100)});
  Work back = bad;
  back.sges = {pair.b.sge(0, 8)};
  pair.b.post(back);
  pair.run();
  EXPECT_EQ(pair.b.poll().at(0).status, UROCE_WC_LOC_QP_OP_ERR);
  EXPECT_EQ(pair.b.snapshot().state, QpState::kSqe);
  pair.a.post(datagram(pair, 8));
  pair.run();
  EXPECT_EQ(pair.b.poll(true).at(0).status, UROCE_WC_SUCCESS);
}

TEST(Datagram, HandleOfAnotherProtectionDomainOrRemovedIsRefused) {
  for (const bool removed : {false, true}) {
    Pair pair = Pair::of(QpType::kUd);
    pair.a.transport->set_address_handle(kPeer, PdId{8}, removed ? nullptr : &pair.a.path);
    pair.a.post(datagram(pair, 8));
    pair.run();
    EXPECT_EQ(pair.a.poll().at(0).status, UROCE_WC_LOC_QP_OP_ERR);
    EXPECT_EQ(pair.a.counters().bad_wqe_ah, 1u);
    EXPECT_TRUE(pair.log.empty());
  }
}

/// The number of reports that everything is sent; other events are not expected.
std::size_t take_reports(End& end) {
  Event events[4];
  const std::size_t count = end.transport->take_events(events);
  for (std::size_t i = 0; i < count; ++i) {
    EXPECT_EQ(events[i].type, AsyncEvent::kDatagramsSent);
    EXPECT_EQ(events[i].object, end.qpn.value);
  }
  return count;
}

TEST(Datagram, WhatIsPostedIsReportedOnceItIsSent) {
  Pair pair = Pair::of(QpType::kUd);
  EXPECT_TRUE(pair.a.transport->report_sent(pair.a.qp).all_sent());
  for (int i = 0; i < 3; ++i) pair.a.post(datagram(pair, 8));
  EXPECT_FALSE(pair.a.transport->report_sent(pair.a.qp).all_sent());
  pair.a.post(datagram(pair, 8));
  EXPECT_FALSE(pair.a.transport->report_sent(pair.a.qp).all_sent()) << "the report of three comes first";
  EXPECT_EQ(take_reports(pair.a), 0u);
  pair.run();
  EXPECT_EQ(take_reports(pair.a), 1u);
  EXPECT_TRUE(pair.a.transport->report_sent(pair.a.qp).all_sent());
  pair.a.post(datagram(pair, 8));
  pair.run();
  EXPECT_EQ(take_reports(pair.a), 0u);
}

TEST(Datagram, WhatIsFlushedIsReportedToo) {
  for (const QpState to : {QpState::kErr, QpState::kReset, QpState::kSqe}) {
    Pair pair = Pair::of(QpType::kUd);
    Work work = datagram(pair, 8);
    if (to == QpState::kSqe) work.ud->ah = 99;
    pair.a.post(work);
    pair.a.post(work);
    EXPECT_FALSE(pair.a.transport->report_sent(pair.a.qp).all_sent());
    if (to == QpState::kSqe) {
      pair.run();
    } else {
      ASSERT_EQ(pair.a.to(to, pair.now).error, 0);
    }
    EXPECT_EQ(pair.a.snapshot().state, to);
    EXPECT_EQ(take_reports(pair.a), 1u);
    EXPECT_TRUE(pair.a.transport->report_sent(pair.a.qp).all_sent());
  }
}

TEST(Datagram, AStoppedSendQueueIsNotSent) {
  Pair pair = Pair::of(QpType::kUd);
  ASSERT_EQ(pair.a.to(QpState::kSqd, pair.now).error, 0);
  pair.a.post(datagram(pair, 8));
  EXPECT_FALSE(pair.a.transport->report_sent(pair.a.qp).all_sent());
  pair.run();
  EXPECT_EQ(take_reports(pair.a), 0u);
  ASSERT_EQ(pair.a.to(QpState::kRts, pair.now).error, 0);
  pair.run();
  EXPECT_EQ(take_reports(pair.a), 1u);
}

TEST(Datagram, HighBitOfTheQkeyStandsForTheQpsOwn) {
  Options options;
  options.type = QpType::kUd;
  Options peer = options;
  options.qkey = peer.qkey = 0x77;
  Pair pair(options, peer);
  for (int i = 0; i < 3; ++i) pair.b.post_receive(1, {pair.b.sge(0, 100)});
  pair.a.post(datagram(pair, 8, 0x80000055));
  pair.a.post(datagram(pair, 8, 0x76));
  pair.run();
  EXPECT_EQ(pair.b.poll(true).size(), 1u);
  EXPECT_EQ(pair.b.counters().drop_bad_qkey, 1u);
  EXPECT_EQ(pair.a.poll().size(), 2u) << "the sender doesn't notice";
}

TEST(Datagram, WithoutReceiveIsDroppedAndCounted) {
  Pair pair = Pair::of(QpType::kUd);
  pair.a.post(datagram(pair, 8));
  pair.run();
  EXPECT_EQ(pair.b.counters().drop_no_receive, 1u);
  EXPECT_EQ(pair.b.snapshot().state, QpState::kRts);
}

TEST(Datagram, TooLongForTheReceiveIsDroppedAndLeavesItForTheNext) {
  Pair pair = Pair::of(QpType::kUd);
  pair.b.post_receive(1, {pair.b.sge(0, kGrh + 100)});
  pair.a.post(datagram(pair, 101));
  pair.run();
  EXPECT_TRUE(pair.b.poll(true).empty());
  EXPECT_EQ(pair.b.counters().drop_too_long, 1u);
  EXPECT_EQ(*pair.b.at(0), std::byte{0});
  pair.a.post(datagram(pair, 100));
  pair.run();
  const auto received = pair.b.poll(true);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].status, UROCE_WC_SUCCESS);
  EXPECT_EQ(received[0].wr_id, 1u);
}

TEST(Datagram, ReceiveIntoForeignMemoryEndsTheQp) {
  Pair pair = Pair::of(QpType::kUd);
  pair.b.post_receive(1, {{End::kIova, 100, pair.b.key.value ^ 0x100}});
  pair.a.post(datagram(pair, 8));
  pair.run();
  EXPECT_EQ(pair.b.poll(true).at(0).status, UROCE_WC_LOC_PROT_ERR);
  EXPECT_EQ(pair.b.counters().bad_wqe_key, 1u);
  EXPECT_EQ(pair.a.counters().rdma_sends, 1u);
  EXPECT_EQ(pair.b.snapshot().state, QpState::kErr);
}

TEST(Datagram, OnlySendsAreForDatagrams) {
  for (const std::uint8_t opcode : {UROCE_WR_RDMA_WRITE, UROCE_WR_RDMA_READ, UROCE_WR_SEND_WITH_INV,
                                    UROCE_WR_ATOMIC_FETCH_AND_ADD, UROCE_WR_LOCAL_INV}) {
    Pair pair = Pair::of(QpType::kUd);
    Work work = datagram(pair, 8);
    work.opcode = opcode;
    pair.a.post(work);
    pair.run();
    EXPECT_EQ(pair.a.poll().at(0).status, UROCE_WC_LOC_QP_OP_ERR) << int{opcode};
  }
}

TEST(Datagram, SourcePortFollowsFromTheQpsUnlessTheHandleHasALabel) {
  Pair pair = Pair::of(QpType::kUd);
  pair.a.post(datagram(pair, 8));
  const auto packets = pair.take(pair.a);
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(wire::load16(packets[0].rx.ip + 20), wire::source_port(0, Qpn{0x11}, Qpn{0x22}));
}

TEST(Datagram, DrainsAndResets) {
  Pair pair = Pair::of(QpType::kUd);
  pair.a.post(datagram(pair, 8));
  ASSERT_EQ(pair.a.to(QpState::kSqd, pair.now, true).error, 0);
  pair.run();
  ASSERT_EQ(pair.a.events().size(), 1u);
  EXPECT_TRUE(pair.log.empty());
  ASSERT_EQ(pair.a.to(QpState::kRts, pair.now).error, 0);
  pair.run();
  EXPECT_EQ(pair.a.poll().size(), 1u);
  ASSERT_EQ(pair.a.to(QpState::kErr, pair.now).error, 0);
  pair.a.post(datagram(pair, 8));
  EXPECT_EQ(pair.a.poll().at(0).status, UROCE_WC_WR_FLUSH_ERR);
  ASSERT_EQ(pair.a.to(QpState::kReset, pair.now).error, 0);
}

wire::Address group(std::uint8_t last) {
  wire::Address address;
  address.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 1, last};
  return address;
}

/// A datagram to the group, taken from a's wire.
Packet to_group(Pair& pair, std::uint8_t last) {
  wire::PathAddress path = pair.a.path;
  path.dest = group(last);
  pair.a.transport->set_address_handle(AhId{2}, pair.a.pd, &path);
  Work work = datagram(pair, 16);
  work.ud->ah = 2;
  work.ud->remote_qpn = 0xffffff;
  pair.a.post(work);
  auto packets = pair.take(pair.a);
  EXPECT_EQ(packets.size(), 1u);
  return std::move(packets.at(0));
}

TEST(Multicast, ReachesAttachedQpsOnly) {
  Pair pair = Pair::of(QpType::kUd);
  for (End* end : {&pair.a, &pair.b}) {
    for (int i = 0; i < 4; ++i) end->post_receive(1, {end->sge(1000, 100)});
  }
  EXPECT_EQ(pair.b.transport->attach_multicast(pair.b.qp, group(1)), 0);
  EXPECT_EQ(pair.b.transport->attach_multicast(pair.b.qp, group(1)), 0);
  EXPECT_TRUE(pair.b.transport->wants_multicast(group(1)));
  EXPECT_FALSE(pair.b.transport->wants_multicast(group(2)));
  const Packet first = to_group(pair, 1), other = to_group(pair, 2);
  pair.deliver(pair.b, first);
  pair.deliver(pair.b, other);
  pair.deliver(pair.a, first);  // the sender is not attached
  EXPECT_EQ(pair.b.poll(true).size(), 1u);
  EXPECT_EQ(pair.b.counters().drop_no_qp, 1u);
  EXPECT_TRUE(pair.a.poll(true).empty());

  EXPECT_EQ(pair.a.transport->attach_multicast(pair.a.qp, group(1)), 0);
  pair.deliver(pair.a, first);
  EXPECT_EQ(pair.a.poll(true).size(), 1u);

  EXPECT_EQ(pair.b.transport->detach_multicast(pair.b.qp, group(1)), 0);
  EXPECT_EQ(pair.b.transport->detach_multicast(pair.b.qp, group(1)), EINVAL);
  pair.deliver(pair.b, first);
  EXPECT_TRUE(pair.b.poll(true).empty());
}

TEST(Multicast, DestroyedQpIsForgotten) {
  Pair pair = Pair::of(QpType::kUd);
  ASSERT_EQ(pair.b.transport->attach_multicast(pair.b.qp, group(1)), 0);
  const Packet packet = to_group(pair, 1);
  pair.b.transport->destroy(pair.b.qp, pair.now);
  EXPECT_FALSE(pair.b.transport->wants_multicast(group(1)));
  pair.deliver(pair.b, packet);
  EXPECT_EQ(pair.b.counters().drop_no_qp, 1u);
}

TEST(Multicast, NeedsADatagramQpAndAGroup) {
  Pair rc, ud = Pair::of(QpType::kUd);
  EXPECT_EQ(rc.a.transport->attach_multicast(rc.a.qp, group(1)), EINVAL);
  EXPECT_EQ(ud.a.transport->attach_multicast(ud.a.qp, ud.a.path.source), EINVAL);
}

}  // namespace
}  // namespace uroce::proto::test
