// QP states (IBTA vol. 1, 10.3.1): error and flush, drain, reset, and their events.
#include "tests/unit/proto/pair.h"

namespace uroce::proto::test {
namespace {

Work write_of(Pair& pair, std::uint32_t bytes, std::uint64_t wr_id, std::uint8_t flags = UROCE_SEND_SIGNALED) {
  return {.wr_id = wr_id,
          .opcode = UROCE_WR_RDMA_WRITE,
          .flags = flags,
          .sges = {pair.a.sge(0, bytes)},
          .remote = End::kIova,
          .rkey = pair.b.key.value};
}

TEST(Error, FlushesEachQueueInOrder) {
  Pair pair;
  for (std::uint64_t i = 0; i < 3; ++i) {
    pair.a.post(write_of(pair, 8, i, 0));
    pair.a.post_receive(10 + i, {});
  }
  EXPECT_EQ(pair.take(pair.a).size(), 3u);
  EXPECT_EQ(pair.a.to(QpState::kErr, pair.now).error, 0);
  const auto sent = pair.a.poll();
  ASSERT_EQ(sent.size(), 3u) << "unsignaled ones too";
  for (std::uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(sent[i].wr_id, i);
    EXPECT_EQ(sent[i].status, UROCE_WC_WR_FLUSH_ERR);
  }
  const auto received = pair.a.poll(true);
  ASSERT_EQ(received.size(), 3u);
  EXPECT_EQ(received[2].wr_id, 12u);
}

TEST(Error, FlushesWhatIsPostedLater) {
  Pair pair;
  pair.a.to(QpState::kErr, pair.now);
  pair.a.post(write_of(pair, 8, 5));
  ASSERT_EQ(pair.a.poll().size(), 1u);
  pair.a.post_receive(6, {});
  EXPECT_TRUE(pair.a.poll(true).empty()) << "receives are posted without a doorbell";
  pair.settle(50 * kMillisecond);
  ASSERT_EQ(pair.a.poll(true).size(), 1u);
  EXPECT_EQ(pair.a.counters().resp_cqe_flush_error, 1u);
}

TEST(Error, FlushesTheReceiveOfAHalfArrivedMessageFirst) {
  Pair pair;
  pair.b.post_receive(1, {pair.b.sge(0, 1000)});
  pair.b.post_receive(2, {});
  pair.a.post({.sges = {pair.a.sge(0, 1000)}});
  const auto packets = pair.take(pair.a);
  pair.deliver(pair.b, packets[0]);
  pair.b.to(QpState::kErr, pair.now);
  const auto received = pair.b.poll(true);
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[0].wr_id, 1u);
  EXPECT_EQ(received[1].wr_id, 2u);
}

TEST(Error, DropsPacketsAndSendsNone) {
  Pair pair;
  pair.a.post(write_of(pair, 8, 1));
  const auto packets = pair.take(pair.a);
  pair.b.to(QpState::kErr, pair.now);
  pair.deliver(pair.b, packets[0]);
  EXPECT_EQ(pair.b.counters().drop_bad_state, 1u);
  EXPECT_TRUE(pair.take(pair.b).empty());
}

TEST(Drain, FinishesWhatWasBegunAndHoldsTheRest) {
  Pair pair;
  pair.a.post(write_of(pair, 8, 1));
  const auto packets = pair.take(pair.a);
  EXPECT_EQ(pair.a.to(QpState::kSqd, pair.now, true).error, 0);
  EXPECT_TRUE(pair.a.snapshot().sq_draining);
  pair.a.post(write_of(pair, 8, 2));
  pair.deliver(pair.b, packets[0]);
  pair.run();
  EXPECT_EQ(pair.a.poll().size(), 1u);
  EXPECT_FALSE(pair.a.snapshot().sq_draining);
  const auto events = pair.a.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].type, AsyncEvent::kSqDrained);
  EXPECT_EQ(pair.a.to(QpState::kRts, pair.now).error, 0);
  pair.run();
  EXPECT_EQ(pair.a.poll().size(), 1u);
}

TEST(Reset, EmptiesBothQueuesAndStartsAfresh) {
  Pair pair;
  pair.a.post(write_of(pair, 8, 1));
  pair.a.post_receive(2, {});
  EXPECT_EQ(pair.take(pair.a).size(), 1u);
  EXPECT_EQ(pair.a.to(QpState::kReset, pair.now).error, 0);
  EXPECT_TRUE(pair.a.poll().empty());
  EXPECT_TRUE(pair.a.poll(true).empty());
  EXPECT_EQ(pair.a.transport->next_timeout(), kNever);
  EXPECT_FALSE(pair.a.transport->wants_transmit());
  EXPECT_EQ(pair.a.snapshot().sq_outstanding, 0u);
  EXPECT_EQ(pair.a.snapshot().state, QpState::kReset);
}

TEST(Established, FirstPacketInRtrRaisesOneEvent) {
  Pair pair;
  QpAttr attr;
  pair.b.to(QpState::kReset, pair.now);
  attr.state = QpState::kInit;
  attr.access = kAllAccess;
  ASSERT_EQ(pair.b.transport
                ->modify(pair.b.qp, attr, kAttrState | kAttrPkeyIndex | kAttrPort | kAttrAccessFlags, pair.now)
                .error,
            0);
  attr.state = QpState::kRtr;
  attr.path = pair.b.path;
  attr.path_mtu = 256;
  attr.dest_qpn = pair.a.qpn;
  attr.rq_psn = Psn(100);
  attr.max_dest_rd_atomic = 1;
  ASSERT_EQ(pair.b.transport
                ->modify(pair.b.qp, attr,
                         kAttrState | kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn | kAttrMaxDestRdAtomic |
                             kAttrMinRnrTimer,
                         pair.now)
                .error,
            0);
  pair.a.post(write_of(pair, 600, 1));
  pair.run();
  EXPECT_EQ(pair.a.poll().size(), 1u) << "a QP in RTR answers";
  const auto events = pair.b.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].type, AsyncEvent::kCommEstablished);
}

TEST(CompletionQueue, OverrunFailsTheCqAndItsQps) {
  Options options;
  options.cq_entries = 4;
  Pair pair(options);
  for (std::uint64_t i = 0; i < 6; ++i) pair.a.post(write_of(pair, 8, i));
  pair.run();
  EXPECT_EQ(pair.a.poll().size(), 4u);
  const auto events = pair.a.events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].type, AsyncEvent::kCqError);
  EXPECT_EQ(events[0].object, 0u);
  EXPECT_EQ(events[1].type, AsyncEvent::kQpFatal);
  EXPECT_EQ(pair.a.snapshot().state, QpState::kErr);
}

TEST(Destroy, LeavesNothingBehind) {
  Pair pair;
  pair.a.post(write_of(pair, 8, 1));
  const auto packets = pair.take(pair.a);
  pair.a.post(write_of(pair, 8, 2));
  pair.a.transport->destroy(pair.a.qp, pair.now);
  pair.deliver(pair.b, packets[0]);
  for (const Packet& packet : pair.take(pair.b)) pair.deliver(pair.a, packet);
  EXPECT_EQ(pair.a.counters().drop_no_qp, 1u);
  EXPECT_EQ(pair.a.transport->next_timeout(), kNever);
  EXPECT_TRUE(pair.take(pair.a).empty());
  QpSnapshot snapshot;
  EXPECT_FALSE(pair.a.transport->query(pair.a.qp, snapshot));
}

}  // namespace
}  // namespace uroce::proto::test
