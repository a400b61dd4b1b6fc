// Work requests that change keys; ATOMIC WRITE and FLUSH (annex A19); congestion notifications (annex A17).
#include "tests/unit/proto/pair.h"

namespace uroce::proto::test {
namespace {

constexpr std::uint32_t kMrAccess = kAllAccess | memory::kMwBind | memory::kFlushGlobal;

/// b has a bindable MR of all its memory.
struct Bound {
  explicit Bound(memory::Kind kind, QpType type = QpType::kRc) : pair(Pair::of(type)) {
    mr = *pair.b.table.insert({.pd = pair.b.pd,
                               .access = kMrAccess,
                               .iova = End::kIova,
                               .length = End::kMemory,
                               .base = pair.b.memory.data()});
    window = *pair.b.table.allocate_window(pair.b.pd, kind);
  }
  Key next() const { return Key{(window.value & ~0xffu) | ((window.value + 1) & 0xff)}; }
  Work bind(std::uint64_t at, std::uint64_t length, std::uint32_t access) const {
    Work work{.opcode = UROCE_WR_BIND_MW, .remote = End::kIova + at, .rkey = next().value};
    work.handle = window.value;
    work.bind = uroce_wr_bind{mr.value, access, length};
    return work;
  }
  std::uint8_t write(std::uint64_t at, std::uint32_t bytes, Key key) {
    pair.a.post({.opcode = UROCE_WR_RDMA_WRITE,
                 .sges = {pair.a.sge(0, bytes)},
                 .remote = End::kIova + at,
                 .rkey = key.value});
    pair.run();
    const auto sent = pair.a.poll();
    return sent.size() == 1 ? sent[0].status : 0xff;
  }

  Pair pair;
  Key mr, window;
};

class Windows : public testing::TestWithParam<memory::Kind> {};

TEST_P(Windows, OpenTheirRangeOnly) {
  Bound bound(GetParam());
  bound.pair.b.post(bound.bind(100, 50, memory::kRemoteWrite));
  bound.pair.run();
  const auto done = bound.pair.b.poll();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, UROCE_WC_SUCCESS);
  EXPECT_EQ(done[0].opcode, UROCE_WC_BIND_MW);
  EXPECT_EQ(bound.write(100, 50, bound.next()), UROCE_WC_SUCCESS);
  EXPECT_EQ(bound.write(99, 2, bound.next()), UROCE_WC_REM_ACCESS_ERR);
}

TEST_P(Windows, GiveOnlyTheRightsTheyWereBoundWith) {
  Bound bound(GetParam());
  bound.pair.b.post(bound.bind(100, 50, memory::kRemoteRead));
  bound.pair.run();
  EXPECT_EQ(bound.write(100, 8, bound.next()), UROCE_WC_REM_ACCESS_ERR);
}

TEST_P(Windows, OldKeyIsDeadAndUnboundWindowToo) {
  Bound bound(GetParam());
  EXPECT_EQ(bound.write(100, 8, bound.window), UROCE_WC_REM_ACCESS_ERR);
}

INSTANTIATE_TEST_SUITE_P(Types, Windows, testing::Values(memory::Kind::kWindow1, memory::Kind::kWindow2),
                         [](const auto& param) { return param.param == memory::Kind::kWindow1 ? "One" : "Two"; });

TEST(Window, TypeOneIsMovedAndUnbound) {
  Bound bound(memory::Kind::kWindow1);
  bound.pair.b.post(bound.bind(0, 10, memory::kRemoteWrite));
  bound.window = bound.next();
  bound.pair.b.post(bound.bind(1000, 10, memory::kRemoteWrite));
  bound.pair.run();
  EXPECT_EQ(bound.write(1000, 10, bound.next()), UROCE_WC_SUCCESS);
  bound.window = bound.next();
  bound.pair.b.post(bound.bind(0, 0, 0));
  bound.pair.run();
  for (const uroce_cqe& cqe : bound.pair.b.poll()) EXPECT_EQ(cqe.status, UROCE_WC_SUCCESS);
  EXPECT_EQ(bound.pair.b.table.windows(bound.mr), 0u);
  EXPECT_EQ(bound.write(1000, 10, bound.window), UROCE_WC_REM_ACCESS_ERR);
}

TEST(Window, BindThatMayNotBeFailsTheQp) {
  Bound bound(memory::Kind::kWindow2);
  bound.pair.b.post(bound.bind(End::kMemory - 5, 10, memory::kRemoteWrite));
  bound.pair.run();
  EXPECT_EQ(bound.pair.b.poll().at(0).status, UROCE_WC_MW_BIND_ERR);
  EXPECT_EQ(bound.pair.b.snapshot().state, QpState::kErr);
}

TEST(Window, PeerInvalidatesATypeTwoWindowWithItsSend) {
  Bound bound(memory::Kind::kWindow2);
  bound.pair.b.post(bound.bind(0, 100, memory::kRemoteWrite));
  bound.pair.b.post_receive(1, {bound.pair.b.sge(500, 8)});
  bound.pair.run();
  bound.pair.a.post(
      {.opcode = UROCE_WR_SEND_WITH_INV, .sges = {bound.pair.a.sge(0, 8)}, .imm = bound.next().value});
  bound.pair.run();
  const auto received = bound.pair.b.poll(true);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].wc_flags, UROCE_WC_WITH_INV);
  EXPECT_EQ(received[0].imm_data, bound.next().value);
  EXPECT_EQ(bound.pair.b.table.windows(bound.mr), 0u);
  EXPECT_EQ(bound.pair.a.poll().at(0).status, UROCE_WC_SUCCESS);
  EXPECT_EQ(bound.write(0, 8, bound.next()), UROCE_WC_REM_ACCESS_ERR);
}

TEST(Window, ServesUnreliableConnectionsToo) {
  Bound bound(memory::Kind::kWindow2, QpType::kUc);
  bound.pair.a.fill(0, 50, 3);
  bound.pair.b.post(bound.bind(100, 50, memory::kRemoteWrite));
  bound.pair.run();
  EXPECT_EQ(bound.pair.b.poll().at(0).status, UROCE_WC_SUCCESS);
  EXPECT_EQ(bound.write(100, 50, bound.next()), UROCE_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(bound.pair.b.at(100), bound.pair.a.at(0), 50), 0);
}

TEST(FastRegistration, MakesAKeyValidUntilItIsInvalidated) {
  Pair pair;
  const Key key = *pair.b.table.allocate_fast(
      {.pd = pair.b.pd, .access = kAllAccess, .length = 4096, .base = pair.b.at(0), .client_address = 0x70000});
  const Key fresh{(key.value & ~0xffu) | ((key.value + 1) & 0xff)};
  Work work{.opcode = UROCE_WR_REG_MR, .remote = 0x70000 + 256, .rkey = fresh.value};
  work.handle = key.value;
  work.bind = uroce_wr_bind{0, memory::kLocalWrite | memory::kRemoteWrite, 512};
  pair.b.post(work);
  pair.run();
  EXPECT_EQ(pair.b.poll().at(0).opcode, UROCE_WC_REG_MR);
  pair.a.fill(0, 512, 9);
  const Work write{
      .opcode = UROCE_WR_RDMA_WRITE, .sges = {pair.a.sge(0, 512)}, .remote = 0x70000 + 256, .rkey = fresh.value};
  pair.a.post(write);
  pair.run();
  EXPECT_EQ(pair.a.poll().at(0).status, UROCE_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(pair.b.at(256), pair.a.at(0), 512), 0);
  pair.b.post({.opcode = UROCE_WR_LOCAL_INV, .imm = fresh.value});
  pair.run();
  EXPECT_EQ(pair.b.poll().at(0).status, UROCE_WC_SUCCESS);
  pair.a.post(write);
  pair.run();
  EXPECT_EQ(pair.a.poll().at(0).status, UROCE_WC_REM_ACCESS_ERR);
}

Options flushing() {
  Options options;
  options.access = kMrAccess;
  return options;
}

Work atomic_write(Pair& pair, std::uint64_t at) {
  return {.opcode = UROCE_WR_ATOMIC_WRITE,
          .sges = {pair.a.sge(0, 8)},
          .remote = End::kIova + at,
          .rkey = pair.b.key.value};
}

TEST(AtomicWrite, StoresEightBytesAndIsConfirmed) {
  Pair pair;
  pair.a.fill(0, 8, 0x31);
  pair.a.post(atomic_write(pair, 64));
  Work inlined = atomic_write(pair, 72);
  inlined.sges.clear();
  inlined.inline_data.assign(8, std::byte{7});
  pair.a.post(inlined);
  pair.run();
  const auto sent = pair.a.poll();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].opcode, UROCE_WC_ATOMIC_WRITE);
  EXPECT_EQ(sent[0].status, UROCE_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(pair.b.at(64), pair.a.at(0), 8), 0);
  EXPECT_EQ(*pair.b.at(79), std::byte{7});
  EXPECT_EQ(pair.log.back().operation(), wire::Operation::kReadResponseOnly);
}

TEST(AtomicWrite, LostConfirmationIsRepeatedAndNothingExecutedTwice) {
  Pair pair;
  pair.a.fill(0, 8, 0x31);
  pair.a.post(atomic_write(pair, 64));
  for (const Packet& packet : pair.take(pair.a)) pair.deliver(pair.b, packet);
  ASSERT_EQ(pair.take(pair.b).size(), 1u);  // lost
  pair.b.fill(64, 8, 0);
  const std::byte kept = *pair.b.at(64);
  pair.settle(kSecond);
  EXPECT_EQ(pair.a.poll().at(0).status, UROCE_WC_SUCCESS);
  EXPECT_EQ(*pair.b.at(64), kept);
}

TEST(AtomicWrite, OddAddressIsRefused) {
  Pair pair;
  pair.a.post(atomic_write(pair, 65));
  pair.run();
  EXPECT_EQ(pair.a.poll().at(0).status, UROCE_WC_REM_INV_REQ_ERR);
}

TEST(Flush, ConfirmsRangesWithTheRightAndRefusesOthers) {
  for (const bool allowed : {true, false}) {
    Pair pair(flushing());
    const Key key = allowed ? *pair.b.table.insert({.pd = pair.b.pd,
                                                    .access = kMrAccess,
                                                    .iova = End::kIova,
                                                    .length = 4096,
                                                    .base = pair.b.memory.data()})
                            : pair.b.key;
    Work work{.opcode = UROCE_WR_FLUSH, .remote = End::kIova, .rkey = key.value};
    work.flush = uroce_wr_flush{1, 0, 4096};
    pair.a.post(work);
    work.flush = uroce_wr_flush{1, 1, 0};
    pair.a.post(work);
    pair.run();
    const auto sent = pair.a.poll();
    ASSERT_EQ(sent.size(), 2u);
    EXPECT_EQ(sent[0].opcode, UROCE_WC_FLUSH);
    EXPECT_EQ(sent[0].status, allowed ? UROCE_WC_SUCCESS : UROCE_WC_REM_ACCESS_ERR);
    EXPECT_EQ(sent[1].status, allowed ? UROCE_WC_SUCCESS : UROCE_WC_WR_FLUSH_ERR);
  }
}

TEST(Congestion, MarkedPacketIsNotifiedAtMostOnceAnInterval) {
  for (const QpType type : {QpType::kRc, QpType::kUc}) {
    Pair pair = Pair::of(type);
    const Work write{.opcode = UROCE_WR_RDMA_WRITE,
                     .sges = {pair.a.sge(0, 1000)},
                     .remote = End::kIova,
                     .rkey = pair.b.key.value};
    std::uint32_t notified = 0;
    const auto burst = [&] {
      pair.a.post(write);
      for (const Packet& packet : pair.take(pair.a)) pair.deliver_marked(pair.b, packet);
      for (const Packet& packet : pair.take(pair.b)) {
        notified += packet.rx.info->service == wire::Service::kCnp;
        EXPECT_EQ(packet.rx.bth.becn, packet.rx.info->service == wire::Service::kCnp);
        pair.deliver(pair.a, packet);
      }
    };
    const std::uint32_t before = pair.a.snapshot().window_bytes;
    burst();
    EXPECT_EQ(notified, 1u);
    if (type == QpType::kRc) {
      EXPECT_LT(pair.a.snapshot().window_bytes, before);
    }
    burst();
    EXPECT_EQ(notified, 1u);
    pair.now += 50 * kMicrosecond;
    burst();
    EXPECT_EQ(notified, 2u);
    EXPECT_EQ(pair.b.counters().np_cnp_sent, 2u);
    EXPECT_EQ(pair.a.counters().rp_cnp_handled, 2u);
    EXPECT_EQ(pair.b.counters().np_ecn_marked_roce_packets, 12u);
  }
}

}  // namespace
}  // namespace uroce::proto::test
