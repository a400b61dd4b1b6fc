// Shared receive queues and XRC: which QP takes which receive, where it completes, and the events.
#include <thread>

#include "proto/state/qp.h"
#include "proto/work/receive_queue.h"
#include "tests/unit/proto/pair.h"
#include "wire/extended_headers.h"

namespace uroce::proto::test {
namespace {

uroce_sge shared_sge(const Pair& pair, std::uint64_t at, std::uint32_t length) {
  return {End::kIova + at, length, pair.b.srq_key.value};
}

class Shared : public testing::TestWithParam<QpType> {
 protected:
  Pair pair = Pair::of(GetParam(), GetParam() != QpType::kXrcSend);
};

TEST_P(Shared, SendTakesFromTheSharedQueueAndItsDomain) {
  pair.a.fill(0, 1000, 4);
  pair.b.post_receive(7, {shared_sge(pair, 100, 1000)});
  pair.a.post({.sges = {pair.a.sge(0, 1000)}});
  pair.run();
  const auto received = pair.b.poll(true);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].wr_id, 7u);
  EXPECT_EQ(received[0].status, UROCE_WC_SUCCESS);
  EXPECT_EQ(received[0].qpn, 0x22u);
  EXPECT_EQ(std::memcmp(pair.b.at(100), pair.a.at(0), 1000), 0);
  EXPECT_EQ(pair.b.srq->posted(), 0u);
}

TEST_P(Shared, LimitIsToldOnce) {
  for (std::uint64_t i = 0; i < 4; ++i) pair.b.post_receive(i, {shared_sge(pair, 0, 100)});
  EXPECT_FALSE(pair.b.srq->set_limit(3));
  for (int i = 0; i < 3; ++i) {
    pair.a.post({.sges = {pair.a.sge(0, 8)}});
    pair.run();
    std::size_t told = 0;
    for (const Event& event : pair.b.events()) {
      if (event.type != AsyncEvent::kSrqLimitReached) continue;
      ++told;
      EXPECT_EQ(event.object, kSrq.value);
      EXPECT_EQ(event.owner, 43u);
    }
    EXPECT_EQ(told, i == 1 ? 1u : 0u) << i;
  }
  EXPECT_EQ(pair.b.srq->limit(), 0u);
  EXPECT_TRUE(pair.b.srq->set_limit(2)) << "one is left";
}

TEST_P(Shared, ErrorEndsTheMessageInHandAndLeavesTheRest) {
  for (std::uint64_t i = 0; i < 3; ++i) pair.b.post_receive(i, {shared_sge(pair, 0, 1000)});
  pair.a.post({.sges = {pair.a.sge(0, 1000)}});
  auto packets = pair.take(pair.a);
  pair.deliver(pair.b, packets[0]);
  ASSERT_EQ(pair.b.to(QpState::kErr, pair.now).error, 0);
  const auto received = pair.b.poll(true);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].wr_id, 0u);
  EXPECT_EQ(received[0].status, UROCE_WC_WR_FLUSH_ERR);
  EXPECT_EQ(pair.b.srq->posted(), 2u);
  std::size_t told = 0;
  for (const Event& event : pair.b.events()) told += event.type == AsyncEvent::kQpLastWqeReached;
  EXPECT_EQ(told, GetParam() == QpType::kXrcSend ? 0u : 1u);
}

TEST_P(Shared, BadEntryFailsTheQpThatTookIt) {
  pair.b.post_receive(1, std::vector<uroce_sge>(9, shared_sge(pair, 0, 8)));
  pair.a.post({.sges = {pair.a.sge(0, 8)}});
  pair.run();
  EXPECT_EQ(pair.b.poll(true).at(0).status, UROCE_WC_LOC_QP_OP_ERR);
  EXPECT_EQ(pair.b.snapshot().state, QpState::kErr);
}

INSTANTIATE_TEST_SUITE_P(Types, Shared, testing::Values(QpType::kRc, QpType::kUc, QpType::kXrcSend),
                         [](const auto& param) {
                           return param.param == QpType::kRc ? "Rc" : param.param == QpType::kUc ? "Uc" : "Xrc";
                         });

TEST(SharedReceive, EmptyQueueIsToldToAReliableSender) {
  Pair pair = Pair::of(QpType::kRc, true);
  pair.a.post({.sges = {pair.a.sge(0, 8)}});
  pair.run();
  EXPECT_EQ(pair.b.counters().rnr_nak_sent, 1u);
  pair.b.post_receive(1, {shared_sge(pair, 0, 8)});
  pair.settle(kSecond);
  EXPECT_EQ(pair.b.poll(true).size(), 1u);
}

TEST(SharedReceive, GrowsAndShrinksWithEntriesInIt) {
  Options options;
  options.srq = true;
  options.entries = 8;
  Pair pair(options);
  for (std::uint64_t i = 0; i < 8; ++i) pair.b.post_receive(i, {shared_sge(pair, 100 * i, 10)});
  for (int i = 0; i < 3; ++i) pair.a.post({.sges = {pair.a.sge(0, 8)}});
  pair.run();
  EXPECT_FALSE(pair.b.resize_srq(4)) << "5 are posted";
  ASSERT_TRUE(pair.b.resize_srq(32));
  for (std::uint64_t i = 8; i < 20; ++i) pair.b.post_receive(i, {shared_sge(pair, 100 * i, 10)});
  for (int i = 0; i < 17; ++i) {
    pair.a.post({.sges = {pair.a.sge(0, 8)}});
    pair.run();
  }
  const auto received = pair.b.poll(true);
  ASSERT_EQ(received.size(), 20u);
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(received[i].wr_id, i);
  EXPECT_TRUE(pair.b.resize_srq(4));
}

TEST(SharedReceive, SeveralWorkersTakeEachEntryOnce) {
  constexpr std::uint32_t kEntries = 256, kStride = 64, kRounds = 40, kThreads = 3;
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> ring(kEntries);
  std::uint32_t producer = 0, consumer = 0;
  const queue::RingShape shape{ring[0].bytes, kEntries, kStride};
  Srq srq({.id = kSrq, .pd = kSrqPd, .ring = queue::WorkConsumer(shape, &producer, &consumer), .max_sge = 1});
  EXPECT_TRUE(srq.set_limit(1)) << "it is empty";
  queue::WorkProducer client(shape, &producer, &consumer);
  std::uint64_t posted = 0;
  const auto post = [&] {
    std::byte* const slot = client.next();
    if (slot == nullptr) return std::this_thread::yield();
    const uroce_rq_entry entry{posted++, 0, 0};
    std::memcpy(slot, &entry, sizeof entry);
    client.advance();
    client.publish();
  };
  while (posted < kEntries) post();
  EXPECT_FALSE(srq.set_limit(kEntries / 2));
  std::vector<std::uint32_t> seen(kEntries * kRounds);
  std::atomic<std::uint32_t> taken{0}, events{0};
  std::vector<std::thread> workers;
  for (std::uint32_t i = 0; i < kThreads; ++i) {
    workers.emplace_back([&] {
      ReceiveWqe wqe;
      while (taken.load() < kEntries * kRounds) {
        bool limit = false;
        if (srq.take(wqe, limit) == FetchResult::kOk) {
          std::atomic_ref(seen.at(wqe.wr_id)).fetch_add(1);
          taken.fetch_add(1);
        } else {
          std::this_thread::yield();
        }
        events.fetch_add(limit);
      }
    });
  }
  while (events.load() == 0) std::this_thread::yield();
  while (posted < kEntries * kRounds) post();
  for (std::thread& worker : workers) worker.join();
  for (const std::uint32_t count : seen) EXPECT_EQ(count, 1u);
  EXPECT_EQ(events.load(), 1u);
}

TEST(Xrc, EveryOperationNamesItsSharedQueue) {
  Pair pair = Pair::of(QpType::kXrcSend);
  const std::uint32_t rkey = pair.b.srq_key.value;
  pair.a.fill(0, 2000, 6);
  pair.b.post_receive(1, {});
  pair.a.post({.wr_id = 1,
               .opcode = UROCE_WR_RDMA_WRITE_WITH_IMM,
               .sges = {pair.a.sge(0, 2000)},
               .remote = End::kIova + 64,
               .rkey = rkey,
               .imm = 9});
  pair.a.post({.wr_id = 2,
               .opcode = UROCE_WR_RDMA_READ,
               .sges = {pair.a.sge(5000, 2000)},
               .remote = End::kIova + 64,
               .rkey = rkey});
  pair.a.post({.wr_id = 3,
               .opcode = UROCE_WR_ATOMIC_FETCH_AND_ADD,
               .sges = {pair.a.sge(8000, 8)},
               .remote = End::kIova,
               .rkey = rkey,
               .compare_add = 5});
  pair.run();
  const auto sent = pair.a.poll();
  ASSERT_EQ(sent.size(), 3u);
  for (const uroce_cqe& cqe : sent) EXPECT_EQ(cqe.status, UROCE_WC_SUCCESS);
  EXPECT_EQ(pair.b.poll(true).size(), 1u);
  EXPECT_EQ(std::memcmp(pair.a.at(5000), pair.a.at(0), 2000), 0);
  EXPECT_EQ(*pair.b.at(0), std::byte{5});
  for (const Packet& packet : pair.log) {
    EXPECT_EQ(packet.rx.info->service, wire::Service::kXrc);
    if (!packet.rx.info->has(wire::kRequest)) continue;
    EXPECT_EQ(wire::XrcEth::parse(packet.rx.bth_start + packet.rx.info->xrceth).srqn, kSrq.value);
  }
}

TEST(Xrc, LostPacketsAreSentAgain) {
  Pair pair = Pair::of(QpType::kXrcSend);
  pair.a.fill(0, 3000, 6);
  pair.b.post_receive(1, {shared_sge(pair, 0, 3000)});
  pair.a.post({.sges = {pair.a.sge(0, 3000)}});
  int index = 0;
  pair.settle(kSecond, [&](const End&, const Packet&) { return index++ % 5 == 2; });
  EXPECT_EQ(pair.a.poll().at(0).status, UROCE_WC_SUCCESS);
  EXPECT_EQ(pair.b.poll(true).size(), 1u);
  EXPECT_EQ(std::memcmp(pair.b.at(0), pair.a.at(0), 3000), 0);
}

TEST(Xrc, UnknownSharedQueueIsRefused) {
  Pair pair = Pair::of(QpType::kXrcSend);
  Work work{.sges = {pair.a.sge(0, 8)}};
  work.srqn = 10;
  pair.a.post(work);
  pair.run();
  EXPECT_EQ(pair.a.poll().at(0).status, UROCE_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(pair.b.snapshot().state, QpState::kErr);
}

TEST(Xrc, MemoryIsThatOfTheSharedQueuesDomain) {
  Pair pair = Pair::of(QpType::kXrcSend);
  pair.a.post({.opcode = UROCE_WR_RDMA_WRITE,
               .sges = {pair.a.sge(0, 8)},
               .remote = End::kIova,
               .rkey = pair.b.key.value});  // of the QP's own PD
  pair.run();
  EXPECT_EQ(pair.a.poll().at(0).status, UROCE_WC_REM_ACCESS_ERR);
}

TEST(Xrc, SharedQueueOfAnotherDomainIsRefused) {
  Pair pair = Pair::of(QpType::kXrcSend);
  Srq other({.id = SrqId{3}, .pd = kSrqPd, .xrc = true, .xrcd = kXrcd + 1});
  pair.b.transport->set_srq(SrqId{3}, &other);
  Work work{.sges = {pair.a.sge(0, 8)}};
  work.srqn = 3;
  pair.a.post(work);
  pair.run();
  EXPECT_EQ(pair.a.poll().at(0).status, UROCE_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(pair.b.counters().drop_bad_srq, 1u);
}

}  // namespace
}  // namespace uroce::proto::test
