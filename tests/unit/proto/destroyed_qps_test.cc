// Destroyed QPs: their last acknowledges are repeated for a second.
#include "proto/rc/destroyed_qps.h"
#include "tests/unit/proto/pair.h"

namespace uroce::proto::test {
namespace {

Work remote_work(Pair& pair, std::uint8_t opcode, std::uint32_t bytes) {
  return {
      .wr_id = 5, .opcode = opcode, .sges = {pair.a.sge(0, bytes)}, .remote = End::kIova, .rkey = pair.b.key.value};
}

/// B executes it, and owes the acknowledge. Returns what A sent.
std::vector<Packet> execute(Pair& pair, const Work& work) {
  pair.a.post(work);
  auto packets = pair.take(pair.a);
  for (const Packet& packet : packets) pair.deliver(pair.b, packet);
  return packets;
}

/// The acknowledge is lost, and B's QP is destroyed.
void lose_answer(Pair& pair) {
  EXPECT_EQ(pair.take(pair.b).size(), 1u) << "and it doesn't arrive";
  pair.b.transport->destroy(pair.b.qp, pair.now);
}

/// A sent a message that B executed, the acknowledge is lost, and B's QP is destroyed.
void lose_acknowledge(Pair& pair) {
  pair.b.post_receive(1, {pair.b.sge(0, 1000)});
  execute(pair, {.wr_id = 5, .sges = {pair.a.sge(0, 1000)}});
  EXPECT_EQ(pair.b.poll(true).size(), 1u);
  lose_answer(pair);
}

/// What A sends when no acknowledge arrives.
std::vector<Packet> retry(Pair& pair) {
  std::vector<Packet> packets;
  while (packets.empty() && pair.a.transport->next_timeout() != kNever) {
    pair.now = std::max(pair.now, pair.a.transport->next_timeout());
    pair.a.transport->advance(pair.now);
    packets = pair.take(pair.a);
  }
  EXPECT_FALSE(packets.empty());
  return packets;
}

TEST(DestroyedQps, AcknowledgesAgainWhatItHadExecuted) {
  Pair pair;
  lose_acknowledge(pair);
  pair.settle(2 * kSecond);
  const auto completions = pair.a.poll();
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].status, UROCE_WC_SUCCESS);
  EXPECT_GT(pair.b.counters().acks_sent, 1u);
  EXPECT_GT(pair.b.counters().duplicate_request, 0u);
}

TEST(DestroyedQps, SendsTheAcknowledgeThatWasOwed) {
  Pair pair;
  execute(pair, remote_work(pair, UROCE_WR_RDMA_WRITE, 8));
  pair.b.transport->destroy(pair.b.qp, pair.now);
  EXPECT_TRUE(pair.b.transport->wants_transmit());
  pair.run();
  EXPECT_FALSE(pair.b.transport->wants_transmit());
  ASSERT_EQ(pair.a.poll().size(), 1u);
  EXPECT_EQ(pair.a.counters().local_ack_timeout_err, 0u);
}

TEST(DestroyedQps, ExecutesNothingNew) {
  Pair pair({.retry_cnt = 1});
  lose_acknowledge(pair);
  pair.a.post({.wr_id = 6, .sges = {pair.a.sge(0, 8)}});
  pair.settle(2 * kSecond);
  const auto completions = pair.a.poll();
  ASSERT_EQ(completions.size(), 2u);
  EXPECT_EQ(completions[0].status, UROCE_WC_SUCCESS);
  EXPECT_EQ(completions[1].wr_id, 6u);
  EXPECT_EQ(completions[1].status, UROCE_WC_RETRY_EXC_ERR);
}

TEST(DestroyedQps, HasNoAnswerForAReadAndPassesNone) {
  Pair pair({.retry_cnt = 1});
  execute(pair, remote_work(pair, UROCE_WR_RDMA_READ, 8));
  lose_answer(pair);
  pair.settle(2 * kSecond);
  const auto completions = pair.a.poll();
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].status, UROCE_WC_RETRY_EXC_ERR);
}

TEST(DestroyedQps, IsForgottenAfterAWhile) {
  Pair pair;
  lose_acknowledge(pair);
  const auto packets = retry(pair);
  pair.now += DestroyedQps::kLingerTime;
  for (const Packet& packet : packets) pair.deliver(pair.b, packet);
  EXPECT_TRUE(pair.take(pair.b).empty());
  EXPECT_EQ(pair.b.counters().drop_no_qp, packets.size());
}

TEST(DestroyedQps, LeavesItsNumberToTheNextQp) {
  Pair pair;
  lose_acknowledge(pair);
  const auto packets = retry(pair);
  QpIndex next;
  ASSERT_EQ(pair.b.transport->create({.type = QpType::kXrcRecv, .qpn = pair.b.qpn}, next), 0);
  for (const Packet& packet : packets) pair.deliver(pair.b, packet);
  EXPECT_TRUE(pair.take(pair.b).empty());
}

TEST(DestroyedQps, HearsItsPeerOnly) {
  Pair pair;
  lose_acknowledge(pair);
  auto packets = retry(pair);
  for (Packet& packet : packets) {
    std::vector<std::byte> other(packet.bytes);
    wire::RxPacket rx = packet.rx;
    const std::size_t source =
        (rx.ip_bytes == 40 ? 8u : 12u) + static_cast<std::size_t>(rx.ip - packet.bytes.data());
    other[source + 3] ^= std::byte{1};
    rx.ip = other.data() + (rx.ip - packet.bytes.data());
    EXPECT_EQ(pair.b.transport->receive(rx, pair.now), wire::ParseVerdict::kOk);
  }
  EXPECT_TRUE(pair.take(pair.b).empty());
}

TEST(DestroyedQps, ChecksWhatWasLeftUnchecked) {
  Pair pair;
  auto packets = execute(pair, remote_work(pair, UROCE_WR_RDMA_WRITE, 1000));
  lose_answer(pair);
  Packet& last = packets.back();
  last.bytes[last.bytes.size() - 1] ^= std::byte{1};
  wire::RxPacket rx;
  ASSERT_EQ(wire::parse(last.bytes, {.defer_icrc = true}, rx), wire::ParseVerdict::kIcrcPending);
  pair.b.transport->receive(rx, pair.now);
  EXPECT_TRUE(pair.take(pair.b).empty());
  EXPECT_EQ(pair.b.counters().drop_no_qp, 1u);
}

}  // namespace
}  // namespace uroce::proto::test
