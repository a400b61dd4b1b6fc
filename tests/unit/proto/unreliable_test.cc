// UC: a lost packet drops its message, and the next message is received whole (IBTA vol. 1, 9.8.2).
#include "tests/unit/proto/pair.h"

namespace uroce::proto::test {
namespace {

Work write_of(Pair& pair, std::uint32_t bytes, std::uint64_t at, std::uint8_t opcode = UROCE_WR_RDMA_WRITE) {
  return {.opcode = opcode,
          .sges = {pair.a.sge(0, bytes)},
          .remote = End::kIova + at,
          .rkey = pair.b.key.value,
          .imm = 0x55};
}

class UcSizes : public testing::TestWithParam<std::uint32_t> {};

TEST_P(UcSizes, SendsAndWritesArrive) {
  Pair pair = Pair::of(QpType::kUc);
  const std::uint32_t n = GetParam();
  pair.a.fill(0, n, 1);
  pair.b.post_receive(7, {pair.b.sge(0, n)});
  pair.b.post_receive(8, {});
  pair.a.post({.wr_id = 1, .opcode = UROCE_WR_SEND_WITH_IMM, .sges = {pair.a.sge(0, n)}, .imm = 0x44});
  Work write = write_of(pair, n, 200000, UROCE_WR_RDMA_WRITE_WITH_IMM);
  write.wr_id = 2;
  pair.a.post(write);
  pair.run();
  const auto sent = pair.a.poll();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].wr_id, 1u);
  EXPECT_EQ(sent[1].opcode, UROCE_WC_RDMA_WRITE);
  const auto received = pair.b.poll(true);
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[0].byte_len, n);
  EXPECT_EQ(received[0].imm_data, 0x44u);
  EXPECT_EQ(received[1].opcode, UROCE_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(received[1].byte_len, n);
  EXPECT_EQ(std::memcmp(pair.b.at(0), pair.a.at(0), n), 0);
  EXPECT_EQ(std::memcmp(pair.b.at(200000), pair.a.at(0), n), 0);
  for (const Packet& packet : pair.log) EXPECT_EQ(packet.rx.info->service, wire::Service::kUc);
}

INSTANTIATE_TEST_SUITE_P(Bytes, UcSizes, testing::Values(0, 1, 256, 257, 5000, 100001));

TEST(Unreliable, LossOfAnyPacketDropsTheMessageAndTheNextIsWhole) {
  for (int lost = 0; lost < 4; ++lost) {
    Pair pair = Pair::of(QpType::kUc);
    pair.a.fill(0, 1000, 3);
    pair.b.post_receive(7, {pair.b.sge(0, 1000)});
    pair.a.post({.sges = {pair.a.sge(0, 1000)}});
    int index = 0;
    pair.run([&](const End&, const Packet&) { return index++ == lost; });
    EXPECT_EQ(pair.a.poll().size(), 1u);
    EXPECT_TRUE(pair.b.poll(true).empty()) << lost;
    pair.a.post({.sges = {pair.a.sge(0, 1000)}});
    pair.run();
    const auto received = pair.b.poll(true);
    ASSERT_EQ(received.size(), 1u) << lost;
    EXPECT_EQ(received[0].wr_id, 7u);
    EXPECT_EQ(received[0].byte_len, 1000u);
    EXPECT_EQ(std::memcmp(pair.b.at(0), pair.a.at(0), 1000), 0);
  }
}

TEST(Unreliable, TailOfOneMessageIsNotTakenForThatOfTheNext) {
  Pair pair = Pair::of(QpType::kUc);
  pair.b.post_receive(7, {pair.b.sge(0, 1000)});
  pair.a.post({.sges = {pair.a.sge(0, 512)}});
  pair.a.post({.sges = {pair.a.sge(0, 512)}});
  auto packets = pair.take(pair.a);
  ASSERT_EQ(packets.size(), 4u);
  pair.deliver(pair.b, packets[0]);
  pair.deliver(pair.b, packets[3]);
  EXPECT_TRUE(pair.b.poll(true).empty());
}

TEST(Unreliable, WriteWithImmediateOfWhichAPacketIsLostGivesNoCompletion) {
  Pair pair = Pair::of(QpType::kUc);
  pair.b.post_receive(7, {});
  pair.a.post(write_of(pair, 1000, 0, UROCE_WR_RDMA_WRITE_WITH_IMM));
  int index = 0;
  pair.run([&](const End&, const Packet&) { return index++ == 1; });
  EXPECT_TRUE(pair.b.poll(true).empty());
  pair.a.post(write_of(pair, 1000, 0, UROCE_WR_RDMA_WRITE_WITH_IMM));
  pair.run();
  EXPECT_EQ(pair.b.poll(true).size(), 1u);
}

TEST(Unreliable, WhatMayNotBeExecutedIsDroppedSilently) {
  Pair pair = Pair::of(QpType::kUc);
  pair.a.fill(0, 600, 1);
  Work work = write_of(pair, 600, 0);
  work.rkey ^= 0x100;
  pair.a.post(work);
  pair.a.post(write_of(pair, 600, End::kMemory - 599));
  pair.a.post({.sges = {pair.a.sge(0, 600)}});  // no receive
  pair.run();
  EXPECT_EQ(pair.a.poll().size(), 3u);
  EXPECT_EQ(pair.b.counters().resp_remote_access_errors, 2u);
  EXPECT_EQ(pair.b.counters().drop_no_receive, 1u);
  EXPECT_EQ(pair.b.snapshot().state, QpState::kRts);
  EXPECT_TRUE(pair.take(pair.b).empty()) << "nothing is ever answered";
  pair.a.post(write_of(pair, 600, 0));
  pair.run();
  EXPECT_EQ(std::memcmp(pair.b.at(0), pair.a.at(0), 600), 0);
}

TEST(Unreliable, MessageTooLongForItsReceiveIsDropped) {
  Pair pair = Pair::of(QpType::kUc);
  pair.b.post_receive(7, {pair.b.sge(0, 500)});
  pair.a.post({.sges = {pair.a.sge(0, 600)}});
  pair.a.post({.sges = {pair.a.sge(0, 500)}});
  pair.run();
  const auto received = pair.b.poll(true);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].byte_len, 500u);
}

TEST(Unreliable, BadEntryStopsTheSendQueueOnly) {
  Pair pair = Pair::of(QpType::kUc);
  pair.a.post({.wr_id = 1, .opcode = UROCE_WR_RDMA_READ, .sges = {pair.a.sge(0, 8)}});
  pair.a.post({.wr_id = 2, .sges = {pair.a.sge(0, 8)}});
  pair.run();
  const auto sent = pair.a.poll();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].status, UROCE_WC_LOC_QP_OP_ERR);
  EXPECT_EQ(sent[1].status, UROCE_WC_WR_FLUSH_ERR);
  EXPECT_EQ(pair.a.snapshot().state, QpState::kSqe);
}

// The next list begins at its first byte, whatever was sent of the list that failed.
TEST(Unreliable, AfterAFailureInTheMiddleOfAListTheNextOneIsSentFromItsBeginning) {
  Pair pair = Pair::of(QpType::kUc);
  uroce_sge wrong = pair.a.sge(8, 8);
  wrong.lkey += 0x100;
  pair.a.post({.sges = {pair.a.sge(0, 8), wrong}});
  pair.run();
  ASSERT_EQ(pair.a.poll().at(0).status, UROCE_WC_LOC_PROT_ERR);
  ASSERT_EQ(pair.a.to(QpState::kRts, pair.now).error, 0);
  pair.a.fill(100, 40, 5);
  pair.b.post_receive(7, {pair.b.sge(0, 64)});
  pair.a.post({.sges = {pair.a.sge(100, 20), pair.a.sge(120, 20)}});
  pair.run();
  EXPECT_EQ(pair.a.poll().at(0).status, UROCE_WC_SUCCESS);
  EXPECT_EQ(pair.b.poll(true).at(0).byte_len, 40u);
  EXPECT_EQ(std::memcmp(pair.b.at(0), pair.a.at(100), 40), 0);
}

TEST(Unreliable, SendsMoreThanATurnAndDrainsWhatItBegan) {
  Pair pair = Pair::of(QpType::kUc);
  pair.a.post(write_of(pair, 256 * 100, 0));
  pair.a.post(write_of(pair, 8, 0));
  ASSERT_EQ(pair.take(pair.a).size(), 101u);
  EXPECT_EQ(pair.a.poll().size(), 2u);
  EXPECT_EQ(pair.a.snapshot().psns_in_flight, 0u);
}

}  // namespace
}  // namespace uroce::proto::test
