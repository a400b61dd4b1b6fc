// The rate limit of a QP holds over any interval, does not depend on when the worker wakes, and does not limit the
// peer.
#include "proto/work/rate_limit.h"

#include "tests/unit/proto/pair.h"

namespace uroce::proto::test {
namespace {

constexpr std::uint32_t kKbps = 100'000;
constexpr std::uint32_t kPacket = 1024 + wire::kMaxOverhead;

ModifyVerdict limit(End& end, Nanos now, std::uint32_t kbps, std::uint32_t burst = 0) {
  QpAttr attr;
  attr.rate_kbps = kbps;
  attr.rate_burst = burst;
  return end.transport->modify(end.qp, attr, kAttrRateLimit, now);
}

/// All bytes that `a` sent up to a time, compared with the limit.
class Meter {
 public:
  Meter(Pair& pair, std::uint64_t burst) : pair_(pair), burst_(burst), start_(pair.now) {}

  bool operator()(const End& from, const Packet& packet) {
    if (&from != &pair_.a) return false;
    bytes += packet.bytes.size();
    elapsed = pair_.now - start_;
    const std::uint64_t due = elapsed * kKbps / 8'000'000;
    EXPECT_LE(bytes, due + burst_);
    return false;
  }

  std::uint64_t bytes = 0;
  Nanos elapsed = 0;

 private:
  Pair& pair_;
  std::uint64_t burst_;
  Nanos start_;
};

class PacedTypes : public testing::TestWithParam<QpType> {};

TEST_P(PacedTypes, TheRateIsReachedAndNeverExceeded) {
  constexpr int kWorks = 48;
  Options options;
  options.type = GetParam();
  options.mtu = 1024;
  const bool datagrams = options.type == QpType::kUd, xrc = options.type == QpType::kXrcSend;
  Options other = options;
  if (xrc) other.type = QpType::kXrcRecv, other.srq = true;
  Pair pair(options, other);
  ASSERT_EQ(limit(pair.a, pair.now, kKbps).error, 0);
  EXPECT_EQ(pair.a.snapshot().attr.rate_kbps, kKbps);
  Meter meter(pair, kPacket);
  for (int i = 0; i < kWorks; ++i) {
    Work work{.sges = {pair.a.sge(0, datagrams ? 1024 : 4096)}};
    if (datagrams) {
      work.ud = Datagram{.ah = kPeer.value, .remote_qpn = 0x22, .remote_qkey = 0x1234};
    } else {
      work.opcode = UROCE_WR_RDMA_WRITE;
      work.remote = End::kIova;
      work.rkey = xrc ? pair.b.srq_key.value : pair.b.key.value;
    }
    pair.a.post(work);
  }
  pair.settle(10 * kSecond, std::ref(meter));
  EXPECT_EQ(pair.a.poll().size(), std::size_t{kWorks});
  EXPECT_EQ(pair.a.counters().retransmitted_pkts, 0u);
  const double ideal = static_cast<double>(rate_limit::time_of(meter.bytes, kKbps));
  EXPECT_NEAR(static_cast<double>(meter.elapsed), ideal, ideal * 0.03);
}

INSTANTIATE_TEST_SUITE_P(Types, PacedTypes,
                         testing::Values(QpType::kRc, QpType::kUc, QpType::kUd, QpType::kXrcSend));

TEST(Pacing, WhoIsLateCatchesUpWithinTheBurstAndNoFurther) {
  Options options;
  options.mtu = 1024;
  Pair pair(options);
  constexpr std::uint32_t kBurst = 8 * kPacket;
  ASSERT_EQ(limit(pair.a, pair.now, kKbps, kBurst).error, 0);
  Meter meter(pair, kBurst + kPacket);
  pair.now += kSecond;  // the bucket is full, and holds just the burst
  const std::size_t before = pair.log.size();
  for (int i = 0; i < 4; ++i) {
    pair.a.post({.opcode = UROCE_WR_RDMA_WRITE,
                 .sges = {pair.a.sge(0, 16384)},
                 .remote = End::kIova,
                 .rkey = pair.b.key.value});
  }
  pair.run();
  std::size_t at_once = 0;
  for (std::size_t i = before; i < pair.log.size(); ++i)
    at_once += pair.log[i].operation() != wire::Operation::kAcknowledge;
  EXPECT_GE(at_once, 8u);
  EXPECT_LE(at_once, 9u);
  pair.settle(kSecond);
  EXPECT_EQ(pair.a.poll().size(), 4u);
}

TEST(Pacing, WhatIsLostCountsAgain) {
  Options options;
  options.mtu = 1024;
  Pair pair(options);
  ASSERT_EQ(limit(pair.a, pair.now, kKbps).error, 0);
  Meter meter(pair, 3 * kPacket);
  int packets = 0;
  for (int i = 0; i < 32; ++i) pair.a.post({.sges = {pair.a.sge(0, 4096)}});
  for (int i = 0; i < 32; ++i) pair.b.post_receive(1, {pair.b.sge(0, 4096)});
  pair.settle(20 * kSecond, [&](const End& from, const Packet& packet) {
    meter(from, packet);
    return ++packets % 13 == 0;
  });
  EXPECT_EQ(pair.a.poll().size(), 32u);
  EXPECT_GT(pair.a.counters().retransmitted_pkts, 0u);
}

TEST(Pacing, EndsWithTheLimitAndWithReset) {
  Options options;
  options.mtu = 1024;
  Pair pair(options);
  ASSERT_EQ(limit(pair.a, pair.now, 1).error, 0);
  const Work write{
      .opcode = UROCE_WR_RDMA_WRITE, .sges = {pair.a.sge(0, 4096)}, .remote = End::kIova, .rkey = pair.b.key.value};
  pair.a.post(write);
  pair.run();
  EXPECT_TRUE(pair.a.poll().empty()) << "4 KiB take half a minute";
  ASSERT_EQ(limit(pair.a, pair.now, 0).error, 0);
  pair.run();
  EXPECT_EQ(pair.a.poll().size(), 1u);
  ASSERT_EQ(limit(pair.a, pair.now, 1).error, 0);
  ASSERT_EQ(pair.a.to(QpState::kReset, pair.now).error, 0);
  EXPECT_EQ(pair.a.snapshot().attr.rate_kbps, 0u);
}

TEST(Pacing, FlushesAtOnceWhatItHeldBack) {
  Options options;
  options.mtu = 1024;
  Pair pair(options);
  ASSERT_EQ(limit(pair.a, pair.now, 1).error, 0);
  for (int i = 0; i < 3; ++i) pair.a.post({.sges = {pair.a.sge(0, 4096)}});
  pair.run();
  ASSERT_EQ(pair.a.to(QpState::kErr, pair.now).error, 0);
  const auto flushed = pair.a.poll();
  ASSERT_EQ(flushed.size(), 3u);
  for (const uroce_cqe& cqe : flushed) EXPECT_EQ(cqe.status, UROCE_WC_WR_FLUSH_ERR);
}

TEST(Pacing, LeavesTheAnswersToThePeerAlone) {
  Pair pair;
  ASSERT_EQ(limit(pair.b, pair.now, 1).error, 0);
  pair.a.post({.opcode = UROCE_WR_RDMA_READ,
               .sges = {pair.a.sge(0, 100'000)},
               .remote = End::kIova,
               .rkey = pair.b.key.value});
  pair.run();
  EXPECT_EQ(pair.a.poll().size(), 1u);
}

TEST(Pacing, ATargetSendsNothingThatCouldBeLimited) {
  Options target;
  target.type = QpType::kXrcRecv;
  target.srq = true;
  Options initiator;
  initiator.type = QpType::kXrcSend;
  Pair pair(initiator, target);
  EXPECT_EQ(limit(pair.b, pair.now, kKbps).error, EINVAL);
}

/// A user's limit, and what an end with it has sent.
class LimitedUser : public testing::Test {
 protected:
  static constexpr int kWorks = 48;
  static constexpr std::uint32_t kBytes = 16384;

  LimitedUser() {
    limit.kbps = kKbps;
    limited.share.limit = &limit;
    limited.mtu = other.mtu = 1024;
  }
  static void post(End& end, const End& to, std::uint8_t opcode, int works = kWorks) {
    for (int i = 0; i < works; ++i) {
      end.post({.opcode = opcode, .sges = {end.sge(0, kBytes)}, .remote = End::kIova, .rkey = to.key.value});
    }
  }
  void expect_rate(const Meter& meter) {
    const double ideal = static_cast<double>(rate_limit::time_of(meter.bytes, kKbps));
    EXPECT_NEAR(static_cast<double>(meter.elapsed), ideal, ideal * 0.03);
  }

  UserRateLimit limit;
  Options limited, other;
};

TEST_F(LimitedUser, SendsAtTheRateWithEachType) {
  for (const QpType type : {QpType::kRc, QpType::kUc}) {
    limited.type = other.type = type;
    limit.clear_at = limit.next_turn = 0;
    Pair pair(limited, other);
    Meter meter(pair, 1024 * 1024);
    post(pair.a, pair.b, UROCE_WR_RDMA_WRITE);
    pair.settle(10 * kSecond, std::ref(meter));
    EXPECT_EQ(pair.a.poll().size(), std::size_t{kWorks});
    expect_rate(meter);
  }
}

TEST_F(LimitedUser, AnswersReadsAtTheRateAndNoPeerRepeatsThem) {
  Pair pair(limited, other);
  Meter meter(pair, 1024 * 1024);
  post(pair.b, pair.a, UROCE_WR_RDMA_READ);
  pair.settle(10 * kSecond, std::ref(meter));
  EXPECT_EQ(pair.b.poll().size(), std::size_t{kWorks});
  EXPECT_EQ(pair.b.snapshot().state, QpState::kRts);
  expect_rate(meter);
}

TEST_F(LimitedUser, AcknowledgesAtOnceWhateverItOwes) {
  Pair pair(limited, other);
  limit.clear_at = pair.now + 20 * kMillisecond;  // as if other QPs of the user had sent
  post(pair.b, pair.a, UROCE_WR_RDMA_WRITE, 1);
  pair.run();
  EXPECT_EQ(pair.b.poll().size(), 1u);
}

TEST_F(LimitedUser, SharesItsRateBetweenItsQps) {
  other.share.limit = &limit;
  Pair pair(limited, other);
  post(pair.a, pair.b, UROCE_WR_RDMA_WRITE);
  post(pair.b, pair.a, UROCE_WR_RDMA_WRITE);
  const Nanos start = pair.now;
  std::uint64_t bytes = 0;
  Nanos elapsed = 0;
  pair.settle(10 * kSecond, [&](const End&, const Packet& packet) {
    bytes += packet.bytes.size();
    elapsed = pair.now - start;
    return false;
  });
  EXPECT_EQ(pair.a.poll().size(), std::size_t{kWorks});
  EXPECT_EQ(pair.b.poll().size(), std::size_t{kWorks});
  const double ideal = static_cast<double>(rate_limit::time_of(bytes, kKbps));
  EXPECT_NEAR(static_cast<double>(elapsed), ideal, ideal * 0.03);
}

}  // namespace
}  // namespace uroce::proto::test
