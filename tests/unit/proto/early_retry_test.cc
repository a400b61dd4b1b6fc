// Early retransmission: the requester detects a missing acknowledge before the timeout.
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "tests/unit/proto/pair.h"

namespace uroce::proto::test {
namespace {

constexpr Nanos kRetryDelay = 4 * kMillisecond;
constexpr Nanos kProbe = kRetryDelay / 8;  ///< a single packet
constexpr Nanos kTimeout = Nanos{4096} << 14;
constexpr Nanos kRound = kRetryDelay / 8;  ///< QPs that are due within it are looked at together

Work write_of(Pair& pair, std::uint32_t bytes) {
  return {.opcode = UROCE_WR_RDMA_WRITE,
          .sges = {pair.a.sge(0, bytes)},
          .remote = End::kIova + 500000,
          .rkey = pair.b.key.value};
}

Work read_of(Pair& pair, std::uint32_t bytes) {
  Work work = write_of(pair, bytes);
  work.opcode = UROCE_WR_RDMA_READ;
  return work;
}

/// A pair whose A has measured the round trip time.
std::unique_ptr<Pair> acquainted(const Options& options = {}) {
  auto pair = std::make_unique<Pair>(options);
  pair->a.post(write_of(*pair, 10));
  pair->run();
  EXPECT_EQ(pair->a.poll().size(), 1u);
  pair->log.clear();
  return pair;
}

/// Advances to the timer at which A sends something, or gives up; returns what it sends.
std::vector<Packet> expire(Pair& pair) {
  std::vector<Packet> packets;
  while (packets.empty() && pair.a.counters().retry_exceeded_err == 0) {
    pair.now = std::max(pair.now, pair.a.transport->next_timeout());
    pair.a.transport->advance(pair.now);
    packets = pair.take(pair.a);
  }
  return packets;
}

/// One message to a peer at that distance.
void exchange(Pair& pair, Nanos rtt) {
  std::deque<std::pair<Nanos, Packet>> under_way;
  const auto send = [&] {
    for (Packet& packet : pair.take(pair.a)) under_way.emplace_back(pair.now + rtt, std::move(packet));
  };
  pair.a.post(write_of(pair, 10));
  send();
  while (!under_way.empty()) {
    pair.now = std::max(pair.now, std::min(under_way.front().first, pair.a.transport->next_timeout()));
    pair.a.transport->advance(pair.now);
    send();
    if (under_way.front().first > pair.now) continue;
    pair.deliver(pair.b, under_way.front().second);
    under_way.pop_front();
    for (const Packet& answer : pair.take(pair.b)) pair.deliver(pair.a, answer);
  }
  EXPECT_EQ(pair.a.poll().size(), 1u);
}

/// Drops that end's packet once.
auto lose_once(const End& end, std::uint32_t psn) {
  return [&end, psn, lost = false](const End& from, const Packet& packet) mutable {
    return &from == &end && packet.psn() == psn && !std::exchange(lost, true);
  };
}

void expect_recovery(Pair& pair) {
  const auto completions = pair.a.poll();
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].status, UROCE_WC_SUCCESS);
  EXPECT_EQ(pair.a.counters().roce_adp_retrans, 1u);
  EXPECT_EQ(pair.a.counters().local_ack_timeout_err, 0u);
}

TEST(EarlyRetry, BringsALostLastPacket) {
  const auto pair = acquainted();
  pair->a.post(write_of(*pair, 1000));
  pair->settle(kRetryDelay + kRound + 2048, lose_once(pair->a, 104));
  expect_recovery(*pair);
  EXPECT_EQ(pair->a.counters().retransmitted_pkts, 1u);
}

TEST(EarlyRetry, BringsSeveralLostPacketsAtTheEnd) {
  const auto pair = acquainted();
  pair->a.post(write_of(*pair, 8 * 256));
  bool early = false;
  const Nanos began = pair->now;
  pair->settle(kRetryDelay + kRound + 2048, [&](const End& from, const Packet& packet) {
    early = pair->now - began < kProbe;
    return early && &from == &pair->a && packet.psn() >= 104;
  });
  expect_recovery(*pair);
  EXPECT_EQ(pair->a.counters().packet_seq_err, 1u);
  EXPECT_EQ(pair->a.counters().retransmitted_pkts, 6u);
}

TEST(EarlyRetry, BringsALostAcknowledge) {
  const auto pair = acquainted();
  pair->a.post(write_of(*pair, 10));
  pair->settle(kRetryDelay + kRound + 2048, lose_once(pair->b, 101));
  expect_recovery(*pair);
  EXPECT_EQ(pair->b.counters().duplicate_request, 1u);
}

TEST(EarlyRetry, BringsTheLastOfAnAnswer) {
  const auto pair = acquainted();
  pair->a.post(read_of(*pair, 1000));
  pair->settle(kRetryDelay + kRound + 2048, lose_once(pair->b, 104));
  expect_recovery(*pair);
}

// Linux answers no request that begins before one that was repeated: what is missing is requested from its
// beginning.
TEST(EarlyRetry, SendsTheLastRequestOfAReadAgain) {
  const auto pair = acquainted();
  pair->a.post(read_of(*pair, 40 * 256));
  const auto sent = pair->take(pair->a);
  ASSERT_EQ(sent.size(), 2u);
  const Nanos began = pair->now;
  const auto probe = expire(*pair);
  EXPECT_LE(pair->now - began, kProbe + kRound + 2048);
  ASSERT_EQ(probe.size(), 1u);
  EXPECT_EQ(probe[0].psn(), sent[1].psn());
  EXPECT_EQ(probe[0].reth().length, sent[1].reth().length);
  EXPECT_EQ(probe[0].reth().address, sent[1].reth().address);
  // The requests were lost, too: a NAK names the first.
  pair->deliver(pair->b, probe[0]);
  pair->run();
  EXPECT_EQ(pair->a.poll().size(), 1u);
  EXPECT_EQ(pair->a.counters().packet_seq_err, 1u);
}

// A responder that is slow has its answers in the queue, which a probe must not change.
TEST(EarlyRetry, OfAReadLeavesAnswersAloneThatHaveNotLeft) {
  const auto pair = acquainted();
  pair->a.post(read_of(*pair, 32 * 256));
  const auto sent = pair->take(pair->a), probe = expire(*pair);
  ASSERT_EQ(probe.size(), 1u);
  for (const Packet& request : sent) pair->deliver(pair->b, request);
  pair->deliver(pair->b, probe[0]);
  pair->run();
  EXPECT_EQ(pair->a.poll().size(), 1u);
  EXPECT_EQ(pair->a.counters().implied_nak_seq_err, 0u);
  EXPECT_EQ(pair->a.counters().drop_unexpected, 0u) << "each answer comes once";
}

TEST(EarlyRetry, DoublesItsDelayAndLeavesTheTimeoutAsItWas) {
  const auto pair = acquainted({.retry_cnt = 1});
  pair->a.post(write_of(*pair, 10));
  EXPECT_EQ(pair->take(pair->a).size(), 1u);
  const Nanos began = pair->now;
  for (Nanos turn = 0; turn < 2; ++turn) {
    for (const Nanos at : {kProbe, 3 * kRetryDelay, 7 * kRetryDelay, kTimeout}) {
      EXPECT_EQ(pair->a.counters().local_ack_timeout_err, turn);
      const auto packets = expire(*pair);
      EXPECT_EQ(packets.size(), turn == 1 && at == kTimeout ? 0u : 1u);
      EXPECT_GE(pair->now - began, turn * kTimeout + at);
      EXPECT_LE(pair->now - began, turn * kTimeout + at + (at == kTimeout ? 4096 : kRetryDelay));
    }
  }
  const auto completions = pair->a.poll();
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].status, UROCE_WC_RETRY_EXC_ERR);
  EXPECT_EQ(pair->a.counters().roce_adp_retrans, 6u);
}

TEST(EarlyRetry, IsAsPatientAsThePeerIsFar) {
  Pair pair;
  for (int i = 0; i < 20; ++i) {
    pair.a.post(write_of(pair, 10));
    const auto packets = pair.take(pair.a);
    pair.now += 10 * kMillisecond;
    pair.a.transport->advance(pair.now);
    for (const Packet& packet : packets) pair.deliver(pair.b, packet);
    pair.run();
    EXPECT_EQ(pair.a.poll().size(), 1u);
  }
  EXPECT_EQ(pair.a.counters().retransmitted_pkts, 1u) << "a probe of the first message";
}

TEST(EarlyRetry, ProbesOnlyUntilThePeerHasAnswered) {
  for (const std::uint8_t opcode : {UROCE_WR_RDMA_WRITE, UROCE_WR_SEND, UROCE_WR_ATOMIC_FETCH_AND_ADD}) {
    Pair pair({.timeout = 18});
    pair.b.post_receive(1, {pair.b.sge(0, 2000)});
    Work work = write_of(pair, opcode == UROCE_WR_ATOMIC_FETCH_AND_ADD ? 8 : 2000);
    work.opcode = opcode;
    pair.a.post(work);
    const Nanos began = pair.now;
    // A peer half a second away, or a network that loses everything until then.
    const auto lost = [&](const End&, const Packet&) { return pair.now - began < kSecond / 2; };
    pair.settle(Nanos{4096} << 18, lost);
    EXPECT_EQ(pair.a.poll().size(), 1u);
    EXPECT_EQ(pair.a.counters().local_ack_timeout_err, 0u);
    EXPECT_LE(pair.a.counters().roce_adp_retrans, 8u);
    EXPECT_LE(pair.a.counters().retransmitted_pkts, pair.a.counters().roce_adp_retrans + 2000 / 256 + 1);
  }
}

TEST(EarlyRetry, LearnsThatThePeerGotFarther) {
  for (const Nanos rtt : {6, 9, 20, 50, 100, 200}) {
    const auto pair = acquainted({.timeout = 18});
    for (int i = 0; i < 40; ++i) exchange(*pair, rtt * kMillisecond);
    const std::uint64_t learning = pair->a.counters().roce_adp_retrans;
    EXPECT_LE(learning, 8u) << rtt << " ms";
    for (int i = 0; i < 40; ++i) exchange(*pair, rtt * kMillisecond);
    EXPECT_EQ(pair->a.counters().roce_adp_retrans, learning) << rtt << " ms";
  }
}

TEST(EarlyRetry, AsksThoughTheWindowGotSmaller) {
  const auto pair = acquainted();
  for (int i = 0; i < 50; ++i) pair->a.post(write_of(*pair, 2000));
  const auto sent = pair->take(pair->a);
  ASSERT_EQ(sent.size(), 400u);
  pair->deliver_marked(pair->b, sent[0]);
  for (const Packet& packet : pair->take(pair->b)) {
    if (packet.rx.info->service == wire::Service::kCnp) pair->deliver(pair->a, packet);
  }
  ASSERT_LT(pair->a.snapshot().window_bytes, 50u * 2000);
  const auto again = expire(*pair);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].psn(), sent.back().psn());
  EXPECT_EQ(pair->a.counters().roce_adp_retrans, 1u);
}

TEST(EarlyRetry, CountsFromTheTimeoutThatIsSetWhileItWaits) {
  const auto pair = acquainted({.timeout = 20});
  for (int i = 0; i < 40; ++i) exchange(*pair, 20 * kMillisecond);
  const std::uint64_t learning = pair->a.counters().roce_adp_retrans;
  pair->a.post(write_of(*pair, 10));
  EXPECT_EQ(pair->take(pair->a).size(), 1u);
  pair->a.to(QpState::kSqd, pair->now);
  QpAttr attr;
  attr.timeout = 17;
  EXPECT_EQ(pair->a.transport->modify(pair->a.qp, attr, kAttrTimeout, pair->now).error, 0);
  const Nanos began = pair->now;
  EXPECT_EQ(expire(*pair).size(), 1u);
  EXPECT_GE(pair->now - began, 20 * kMillisecond);
  EXPECT_EQ(pair->a.counters().roce_adp_retrans, learning + 1);
}

TEST(EarlyRetry, TakesADeadlineThatWasSetLaterForNoWait) {
  const auto pair = acquainted();
  pair->a.post(write_of(*pair, 10));
  EXPECT_EQ(pair->take(pair->a).size(), 1u);
  pair->now = pair->a.transport->next_timeout();
  pair->a.to(QpState::kSqd, pair->now);
  QpAttr attr;
  attr.timeout = 14;
  EXPECT_EQ(pair->a.transport->modify(pair->a.qp, attr, kAttrTimeout, pair->now + kMicrosecond).error, 0);
  pair->a.transport->advance(pair->now);
  EXPECT_TRUE(pair->take(pair->a).empty());
  EXPECT_EQ(pair->a.counters().roce_adp_retrans, 0u);
}

TEST(EarlyRetry, WaitsUntilAllThatArrivedIsReceived) {
  const auto pair = acquainted();
  pair->a.post(write_of(*pair, 10));
  EXPECT_EQ(pair->take(pair->a).size(), 1u);
  pair->now += kRetryDelay + kRound;
  pair->a.transport->advance(pair->now, true);
  EXPECT_TRUE(pair->take(pair->a).empty());
  pair->a.transport->advance(pair->now);
  EXPECT_EQ(pair->take(pair->a).size(), 1u);
}

TEST(EarlyRetry, GoesOnWhereItWasWhenThePeerWasOnlySlow) {
  const auto pair = acquainted();
  pair->a.post(write_of(*pair, 32 * 256));
  const auto sent = pair->take(pair->a);
  ASSERT_EQ(sent.size(), 32u);
  const auto again = expire(*pair);
  ASSERT_EQ(again.size(), 1u);
  for (std::size_t i = 0; i < 20; ++i) pair->deliver(pair->b, sent[i]);
  pair->run();
  for (std::size_t i = 20; i < sent.size(); ++i) pair->deliver(pair->b, sent[i]);
  pair->deliver(pair->b, again[0]);
  pair->a.post(write_of(*pair, 256));
  pair->run();
  EXPECT_EQ(pair->a.poll().size(), 2u);
  EXPECT_EQ(pair->a.counters().retransmitted_pkts, 1u);
  EXPECT_EQ(pair->b.counters().out_of_sequence, 0u);
}

TEST(EarlyRetry, HappensNotWithoutRetries) {
  const auto pair = acquainted({.retry_cnt = 0});
  pair->a.post(write_of(*pair, 10));
  EXPECT_EQ(pair->take(pair->a).size(), 1u);
  EXPECT_TRUE(expire(*pair).empty());
  EXPECT_EQ(pair->a.poll()[0].status, UROCE_WC_RETRY_EXC_ERR);
  EXPECT_EQ(pair->a.counters().roce_adp_retrans, 0u);
}

}  // namespace
}  // namespace uroce::proto::test
