// How long send work requests take: from a measured doorbell to their completion.
#include "proto/state/latency.h"

#include "tests/unit/proto/pair.h"

namespace uroce::proto::test {
namespace {

using Kind = abi::OperationKind;

class LatencyTest : public ::testing::Test {
 protected:
  explicit LatencyTest(const Options& options = {}) : pair(options) {}

  Work work(std::uint8_t opcode, std::uint32_t bytes = 8, std::uint8_t flags = UROCE_SEND_SIGNALED) {
    return {.wr_id = ++wr_id,
            .opcode = opcode,
            .flags = flags,
            .sges = {pair.a.sge(0, bytes)},
            .remote = End::kIova,
            .rkey = pair.b.key.value};
  }
  void ring() { pair.a.transport->measured_doorbell(pair.a.qp, pair.now); }
  void post(const Work& what) {
    pair.a.post(what);
    ring();
  }
  /// The peer's packets arrive `after` those of a.
  void run(Nanos after) {
    for (const Packet& each : pair.take(pair.a)) pair.deliver(pair.b, each);
    pair.now += after;
    for (const Packet& each : pair.take(pair.b)) pair.deliver(pair.a, each);
  }
  const base::LatencyHistogram& of(Kind kind) const {
    return pair.a.transport->latencies()[static_cast<std::size_t>(kind)];
  }
  std::uint64_t measured() const {
    std::uint64_t all = 0;
    for (const base::LatencyHistogram& each : pair.a.transport->latencies()) all += each.count();
    return all;
  }

  Pair pair;
  std::uint64_t wr_id = 0;
};

TEST_F(LatencyTest, IsTheTimeFromTheDoorbellToTheCompletion) {
  post(work(UROCE_WR_RDMA_WRITE));
  EXPECT_EQ(measured(), 0u);
  run(20 * kMicrosecond);
  ASSERT_EQ(of(Kind::kWrite).count(), 1u);
  EXPECT_EQ(of(Kind::kWrite).sum(), 20 * kMicrosecond);
  EXPECT_EQ(pair.a.poll().size(), 1u);
  post(work(UROCE_WR_RDMA_READ));
  run(7 * kMicrosecond);
  EXPECT_EQ(of(Kind::kRead).sum(), 7 * kMicrosecond);
  EXPECT_EQ(measured(), 2u);
}

TEST_F(LatencyTest, EachOperationHasItsOwn) {
  for (std::uint64_t i = 0; i < 4; ++i) pair.b.post_receive(i, {pair.b.sge(4096, 4096)});
  for (const std::uint8_t opcode :
       {UROCE_WR_SEND, UROCE_WR_SEND_WITH_IMM, UROCE_WR_RDMA_WRITE, UROCE_WR_RDMA_WRITE_WITH_IMM,
        UROCE_WR_RDMA_READ, UROCE_WR_ATOMIC_FETCH_AND_ADD, UROCE_WR_ATOMIC_CMP_AND_SWP, UROCE_WR_ATOMIC_WRITE}) {
    post(work(opcode));
    run(kMicrosecond);
  }
  EXPECT_EQ(of(Kind::kSend).count(), 2u);
  EXPECT_EQ(of(Kind::kWrite).count(), 2u);
  EXPECT_EQ(of(Kind::kRead).count(), 1u);
  EXPECT_EQ(of(Kind::kAtomic).count(), 2u);
  EXPECT_EQ(of(Kind::kAtomicWrite).count(), 1u);
  EXPECT_EQ(measured(), 8u);
}

TEST_F(LatencyTest, AnUnsignaledRequestIsMeasuredAndMakesNoCompletion) {
  post(work(UROCE_WR_RDMA_WRITE, 8, 0));
  run(kMicrosecond);
  EXPECT_EQ(of(Kind::kWrite).count(), 1u);
  EXPECT_TRUE(pair.a.poll().empty());
}

/// What waits behind others in the send queue is part of it.
TEST_F(LatencyTest, TheNewestRequestOfADoorbellIsMeasured) {
  for (int i = 0; i < 10; ++i) pair.a.post(work(i == 9 ? UROCE_WR_RDMA_READ : UROCE_WR_RDMA_WRITE));
  ring();
  run(5 * kMicrosecond);
  run(0);
  EXPECT_EQ(measured(), 1u);
  EXPECT_EQ(of(Kind::kRead).sum(), 5 * kMicrosecond);
}

TEST_F(LatencyTest, OneRequestIsMeasuredAtATime) {
  post(work(UROCE_WR_RDMA_WRITE));
  pair.now += kMicrosecond;
  post(work(UROCE_WR_RDMA_WRITE));
  post(work(UROCE_WR_RDMA_READ));
  run(kMicrosecond);
  EXPECT_EQ(measured(), 1u);
  EXPECT_EQ(of(Kind::kWrite).sum(), 2 * kMicrosecond);
  post(work(UROCE_WR_RDMA_READ));
  run(kMicrosecond);
  EXPECT_EQ(measured(), 2u);
}

TEST_F(LatencyTest, ARetransmissionIsPartOfIt) {
  post(work(UROCE_WR_RDMA_WRITE));
  const Nanos began = pair.now;
  pair.take(pair.a);  // lost
  while (measured() == 0 && pair.now < began + kSecond) pair.settle(kMillisecond);
  ASSERT_EQ(of(Kind::kWrite).count(), 1u);
  EXPECT_GT(of(Kind::kWrite).sum(), 100 * kMicrosecond);
  EXPECT_LE(of(Kind::kWrite).sum(), pair.now - began);
}

TEST_F(LatencyTest, ADoorbellWithoutRequestMeasuresNothing) {
  ring();
  pair.a.transport->measured_doorbell(QpIndex{77}, pair.now);
  EXPECT_TRUE(pair.take(pair.a).empty());
  post(work(UROCE_WR_RDMA_WRITE));
  run(kMicrosecond);
  EXPECT_EQ(of(Kind::kWrite).sum(), kMicrosecond);
}

TEST_F(LatencyTest, WithoutMeasuredDoorbellsNothingIsMeasured) {
  pair.a.post(work(UROCE_WR_RDMA_WRITE));
  run(kMicrosecond);
  EXPECT_EQ(pair.a.poll().size(), 1u);
  EXPECT_EQ(measured(), 0u);
}

TEST_F(LatencyTest, ARequestThatFailsIsNotCounted) {
  Work bad = work(UROCE_WR_RDMA_WRITE);
  bad.rkey ^= 1;
  post(bad);
  run(kMicrosecond);
  EXPECT_EQ(pair.a.poll().size(), 1u);
  EXPECT_EQ(measured(), 0u);
}

/// The QP goes through RESET while a request is measured, and is measured from the start then.
TEST_F(LatencyTest, AResetForgetsTheRequest) {
  for (int i = 0; i < 5; ++i) pair.a.post(work(UROCE_WR_RDMA_WRITE));
  ring();
  ASSERT_EQ(pair.a.to(QpState::kReset, pair.now).error, 0);
  ASSERT_EQ(pair.b.to(QpState::kReset, pair.now).error, 0);
  const auto remote = [](const End& end) {
    return Remote{end.qpn, end.options.psn, end.path.source, end.path.source_mac};
  };
  connect(pair.a, remote(pair.b), pair.now);
  connect(pair.b, remote(pair.a), pair.now);
  pair.now += kSecond;
  post(work(UROCE_WR_RDMA_WRITE));
  run(kMicrosecond);
  EXPECT_EQ(of(Kind::kWrite).count(), 1u);
  EXPECT_EQ(of(Kind::kWrite).sum(), kMicrosecond);
}

TEST_F(LatencyTest, ClearBeginsFromNone) {
  post(work(UROCE_WR_RDMA_WRITE));
  run(kMicrosecond);
  pair.a.transport->clear_latencies();
  EXPECT_EQ(measured(), 0u);
}

class DatagramLatencyTest : public LatencyTest {
 protected:
  DatagramLatencyTest() : LatencyTest(Options{.type = QpType::kUd}) {}
  Work datagram(std::uint32_t bytes = 8) {
    Work out = work(UROCE_WR_SEND, bytes);
    out.ud = Datagram{kPeer.value, pair.b.qpn.value, pair.b.options.qkey};
    return out;
  }
};

TEST_F(DatagramLatencyTest, LastsUntilItIsSent) {
  post(datagram());
  pair.now += 3 * kMicrosecond;
  EXPECT_EQ(pair.take(pair.a).size(), 1u);
  EXPECT_EQ(of(Kind::kSend).sum(), 3 * kMicrosecond);
}

/// The measured datagram is flushed as the QP enters SQE; the next one that completes is not taken for it.
TEST_F(DatagramLatencyTest, AFlushedRequestIsPassedOver) {
  Work bad = datagram();
  bad.sges[0].lkey ^= 1;
  pair.a.post(bad);
  pair.a.post(datagram());
  ring();
  EXPECT_TRUE(pair.take(pair.a).empty());
  EXPECT_EQ(pair.a.poll().size(), 2u);
  ASSERT_EQ(pair.a.to(QpState::kRts, pair.now).error, 0);
  pair.a.post(datagram());
  EXPECT_EQ(pair.take(pair.a).size(), 1u);
  EXPECT_EQ(measured(), 0u);
  post(datagram());
  EXPECT_EQ(pair.take(pair.a).size(), 1u);
  EXPECT_EQ(measured(), 1u);
}

}  // namespace
}  // namespace uroce::proto::test
