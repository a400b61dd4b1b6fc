// Messages and their completions when nothing is lost.
#include <thread>

#include "tests/unit/proto/pair.h"

namespace uroce::proto::test {
namespace {

class Sizes : public testing::TestWithParam<std::uint32_t> {};

TEST_P(Sizes, SendFillsTheReceive) {
  Pair pair;
  const std::uint32_t n = GetParam();
  pair.a.fill(0, n, 1);
  pair.b.post_receive(7, {pair.b.sge(100, n)});
  pair.a.post({.wr_id = 5, .sges = {pair.a.sge(0, n)}});
  pair.run();
  const auto sent = pair.a.poll();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].wr_id, 5u);
  EXPECT_EQ(sent[0].status, UROCE_WC_SUCCESS);
  EXPECT_EQ(sent[0].opcode, UROCE_WC_SEND);
  EXPECT_EQ(sent[0].qpn, 0x11u);
  const auto received = pair.b.poll(true);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].wr_id, 7u);
  EXPECT_EQ(received[0].status, UROCE_WC_SUCCESS);
  EXPECT_EQ(received[0].opcode, UROCE_WC_RECV);
  EXPECT_EQ(received[0].byte_len, n);
  EXPECT_EQ(std::memcmp(pair.b.at(100), pair.a.at(0), n), 0);
  EXPECT_EQ(*pair.b.at(100 + n), std::byte{0});
  EXPECT_EQ(pair.a.counters().rdma_sends, 1u);
  EXPECT_EQ(pair.b.counters().rdma_recvs, 1u);
}

TEST_P(Sizes, WriteReachesRemoteMemory) {
  Pair pair;
  const std::uint32_t n = GetParam();
  pair.a.fill(0, n, 2);
  pair.a.post({.opcode = UROCE_WR_RDMA_WRITE,
               .sges = {pair.a.sge(0, n)},
               .remote = End::kIova + 333,
               .rkey = pair.b.key.value});
  pair.run();
  const auto sent = pair.a.poll();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].status, UROCE_WC_SUCCESS);
  EXPECT_EQ(sent[0].opcode, UROCE_WC_RDMA_WRITE);
  EXPECT_EQ(std::memcmp(pair.b.at(333), pair.a.at(0), n), 0);
  EXPECT_TRUE(pair.b.poll(true).empty());
  EXPECT_EQ(pair.a.counters().rdma_sends, 0u);
}

TEST_P(Sizes, ReadFetchesRemoteMemory) {
  Pair pair;
  const std::uint32_t n = GetParam();
  pair.b.fill(1000, n, 3);
  pair.a.post({.opcode = UROCE_WR_RDMA_READ,
               .sges = {pair.a.sge(50, n)},
               .remote = End::kIova + 1000,
               .rkey = pair.b.key.value});
  pair.run();
  const auto sent = pair.a.poll();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].status, UROCE_WC_SUCCESS);
  EXPECT_EQ(sent[0].opcode, UROCE_WC_RDMA_READ);
  EXPECT_EQ(sent[0].byte_len, n);
  EXPECT_EQ(std::memcmp(pair.a.at(50), pair.b.at(1000), n), 0);
}

INSTANTIATE_TEST_SUITE_P(Bytes, Sizes,
                         testing::Values(0, 1, 3, 4, 255, 256, 257, 511, 512, 513, 8192, 8193, 100000, 500001));

TEST(Message, ScattersAndGathersOverElements) {
  Pair pair;
  pair.a.fill(0, 3000, 9);
  pair.b.post_receive(1, {pair.b.sge(0, 700), pair.b.sge(5000, 1), pair.b.sge(9000, 2000), pair.b.sge(20000, 500)});
  pair.a.post({.sges = {pair.a.sge(0, 1), pair.a.sge(1, 0), pair.a.sge(1, 1500), pair.a.sge(1501, 1000)}});
  pair.run();
  ASSERT_EQ(pair.b.poll(true).size(), 1u);
  EXPECT_EQ(std::memcmp(pair.b.at(0), pair.a.at(0), 700), 0);
  EXPECT_EQ(std::memcmp(pair.b.at(5000), pair.a.at(700), 1), 0);
  EXPECT_EQ(std::memcmp(pair.b.at(9000), pair.a.at(701), 1800), 0);
  EXPECT_EQ(*pair.b.at(9000 + 1800), std::byte{0});
}

TEST(Message, ImmediateArrivesAsPosted) {
  Pair pair;
  pair.b.post_receive(1, {pair.b.sge(0, 8)});
  pair.b.post_receive(2, {});
  pair.a.post({.opcode = UROCE_WR_SEND_WITH_IMM, .sges = {pair.a.sge(0, 8)}, .imm = 0xdeadbeef});
  pair.a.post({.opcode = UROCE_WR_RDMA_WRITE_WITH_IMM,
               .sges = {pair.a.sge(0, 600)},
               .remote = End::kIova,
               .rkey = pair.b.key.value,
               .imm = 0x01020304});
  pair.run();
  const auto received = pair.b.poll(true);
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[0].imm_data, 0xdeadbeefu);
  EXPECT_EQ(received[0].wc_flags, UROCE_WC_WITH_IMM);
  EXPECT_EQ(received[0].opcode, UROCE_WC_RECV);
  EXPECT_EQ(received[1].imm_data, 0x01020304u);
  EXPECT_EQ(received[1].opcode, UROCE_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(received[1].byte_len, 600u);
}

TEST(Message, InlineDataLeavesFromTheEntry) {
  Pair pair;
  std::vector<std::byte> data(100);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i + 1);
  pair.b.post_receive(1, {pair.b.sge(0, 200)});
  pair.a.post({.inline_data = data});
  pair.run();
  ASSERT_EQ(pair.b.poll(true).size(), 1u);
  EXPECT_EQ(std::memcmp(pair.b.at(0), data.data(), data.size()), 0);
}

/// A word that cannot be mapped, and a kernel that lets other threads run between read and write.
struct RemoteWord {
  memory::IndirectIo io{.read =
                            [](void* context, std::uint64_t, std::byte* to, std::size_t bytes) {
                              std::memcpy(to, &static_cast<RemoteWord*>(context)->value, bytes);
                              std::this_thread::yield();
                              return true;
                            },
                        .write =
                            [](void* context, std::uint64_t, const std::byte* from, std::size_t bytes) {
                              std::memcpy(&static_cast<RemoteWord*>(context)->value, from, bytes);
                              return true;
                            },
                        .context = this};
  std::uint64_t value = 0;
};

TEST(Message, AtomicsOnMemoryThatIsNotMappedAreAtomicAmongWorkers) {
  constexpr std::uint64_t kEach = 500;
  RemoteWord word;
  const auto add = [&word] {
    Pair pair;
    const Key key =
        *pair.b.table.insert({.pd = pair.b.pd, .access = kAllAccess, .length = 4096, .indirect = &word.io});
    for (std::uint64_t i = 0; i < kEach; ++i) {
      pair.a.post({.opcode = UROCE_WR_ATOMIC_FETCH_AND_ADD,
                   .sges = {pair.a.sge(0, 8)},
                   .remote = 64,
                   .rkey = key.value,
                   .compare_add = 1});
      pair.run();
      ASSERT_EQ(pair.a.poll().size(), 1u);
    }
  };
  std::thread other(add);
  add();
  other.join();
  EXPECT_EQ(word.value, 2 * kEach);
}

TEST(Message, AtomicsReturnTheOriginalValue) {
  Pair pair;
  const std::uint64_t start = 40;
  std::memcpy(pair.b.at(64), &start, 8);
  pair.a.post({.opcode = UROCE_WR_ATOMIC_FETCH_AND_ADD,
               .sges = {pair.a.sge(0, 8)},
               .remote = End::kIova + 64,
               .rkey = pair.b.key.value,
               .compare_add = 2});
  pair.a.post({.opcode = UROCE_WR_ATOMIC_CMP_AND_SWP,
               .sges = {pair.a.sge(8, 8)},
               .remote = End::kIova + 64,
               .rkey = pair.b.key.value,
               .compare_add = 42,
               .swap = 99});
  pair.a.post({.opcode = UROCE_WR_ATOMIC_CMP_AND_SWP,
               .sges = {pair.a.sge(16, 8)},
               .remote = End::kIova + 64,
               .rkey = pair.b.key.value,
               .compare_add = 42,
               .swap = 1});
  pair.run();
  const auto sent = pair.a.poll();
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(sent[0].opcode, UROCE_WC_FETCH_ADD);
  EXPECT_EQ(sent[1].opcode, UROCE_WC_COMP_SWAP);
  std::uint64_t got[3], end = 0;
  std::memcpy(got, pair.a.at(0), sizeof got);
  std::memcpy(&end, pair.b.at(64), 8);
  EXPECT_EQ(got[0], 40u);
  EXPECT_EQ(got[1], 42u);
  EXPECT_EQ(got[2], 99u);
  EXPECT_EQ(end, 99u);
}

TEST(Message, PsnsWrap) {
  Options options;
  options.psn = 0xfffffe;
  Pair pair(options);
  pair.a.fill(0, 5000, 4);
  pair.b.fill(50000, 5000, 5);
  for (std::uint64_t i = 0; i < 4; ++i) {
    pair.b.post_receive(i, {pair.b.sge(i * 5000, 5000)});
    pair.a.post({.wr_id = i, .sges = {pair.a.sge(0, 5000)}});
    pair.a.post({.wr_id = 10 + i,
                 .opcode = UROCE_WR_RDMA_READ,
                 .sges = {pair.a.sge(100000 + i * 5000, 5000)},
                 .remote = End::kIova + 50000,
                 .rkey = pair.b.key.value});
  }
  pair.run();
  EXPECT_EQ(pair.a.poll().size(), 8u);
  for (std::uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(std::memcmp(pair.b.at(i * 5000), pair.a.at(0), 5000), 0);
    EXPECT_EQ(std::memcmp(pair.a.at(100000 + i * 5000), pair.b.at(50000), 5000), 0);
  }
}

TEST(Message, MsnsWrap) {
  Pair pair;
  pair.a.post({.opcode = UROCE_WR_RDMA_WRITE, .remote = End::kIova, .rkey = pair.b.key.value});
  const auto sent = pair.take(pair.a);
  ASSERT_EQ(sent.size(), 1u);
  wire::RxPacket packet = sent[0].rx;
  packet.bth.ack_req = false;
  for (std::uint32_t i = 0; i <= Msn::kMask; ++i, ++packet.bth.psn) pair.b.transport->receive(packet, pair.now);
  packet.bth.ack_req = true;
  pair.b.transport->receive(packet, pair.now);
  const auto answers = pair.take(pair.b);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].psn(), packet.bth.psn.value());
  EXPECT_EQ(answers[0].aeth().msn.value(), 1u) << "2^24 messages, and one";
  EXPECT_EQ(pair.b.counters().rx_write_requests, Msn::kMask + 2u);
}

TEST(Message, UnsignaledWorkCompletesSilently) {
  Pair pair;
  for (std::uint64_t i = 0; i < 10; ++i) {
    pair.a.post({.wr_id = i,
                 .opcode = UROCE_WR_RDMA_WRITE,
                 .flags = static_cast<std::uint8_t>(i == 9 ? UROCE_SEND_SIGNALED : 0),
                 .sges = {pair.a.sge(0, 10)},
                 .remote = End::kIova,
                 .rkey = pair.b.key.value});
  }
  pair.run();
  const auto sent = pair.a.poll();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].wr_id, 9u);
  EXPECT_EQ(pair.a.snapshot().sq_outstanding, 0u);
}

}  // namespace
}  // namespace uroce::proto::test
