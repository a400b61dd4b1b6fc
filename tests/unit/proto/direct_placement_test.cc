// Payload that is placed while its ICRC is computed: what a packet with a wrong ICRC may overwrite.
#include "proto/rc/direct_placement.h"

#include <cstring>
#include <vector>

#include "tests/unit/proto/pair.h"
#include "wire/bytes.h"

namespace uroce::proto::test {
namespace {

constexpr std::uint32_t kPathMtu = 256;

/// Between the first bytes of both memories.
Work work_of(Pair& pair, std::uint8_t opcode, std::uint32_t bytes) {
  return {.opcode = opcode, .sges = {pair.a.sge(0, bytes)}, .remote = End::kIova, .rkey = pair.b.key.value};
}

/// Delivers with the ICRC pending where possible, optionally with a wrong bit. False: the ICRC was bad.
bool deliver_open(Pair& pair, End& to, Packet packet, bool spoil = false) {
  if (spoil) packet.bytes[packet.bytes.size() - 100] ^= std::byte{1};
  EXPECT_TRUE(wire::accepted(wire::parse(packet.bytes, {.defer_icrc = true}, packet.rx)));
  return to.transport->receive(packet.rx, pair.now) == wire::ParseVerdict::kOk;
}

/// The packets of a WRITE, in flight to memory with other contents.
struct OpenWrite {
  explicit OpenWrite(std::uint32_t bytes, std::uint8_t opcode = UROCE_WR_RDMA_WRITE) {
    pair.a.fill(0, 4096, 1);
    pair.b.fill(0, 4096, 2);
    before.assign(pair.b.at(0), pair.b.at(4096));
    pair.a.post(work_of(pair, opcode, bytes));
    packets = pair.take(pair.a);
    EXPECT_EQ(packets.size(), 4u);
  }
  Pair pair;
  std::vector<std::byte> before;
  std::vector<Packet> packets;
};

TEST(DirectPlacement, RestOfAWriteIsPlacedOnceItsIcrcIsGood) {
  OpenWrite write(1000);
  auto& [pair, before, packets] = write;
  EXPECT_TRUE(deliver_open(pair, pair.b, packets[0]));
  // Not expected next: verified first, so nothing is written.
  EXPECT_FALSE(deliver_open(pair, pair.b, packets[2], true));
  EXPECT_EQ(std::memcmp(pair.b.at(kPathMtu), &before[kPathMtu], 4096 - kPathMtu), 0);
  // Expected next: its own destination may have any contents, and nothing else has changed.
  EXPECT_FALSE(deliver_open(pair, pair.b, packets[1], true));
  EXPECT_EQ(std::memcmp(pair.b.at(0), pair.a.at(0), kPathMtu), 0);
  EXPECT_EQ(std::memcmp(pair.b.at(2 * kPathMtu), &before[2 * kPathMtu], 4096 - 2 * kPathMtu), 0);
  EXPECT_EQ(pair.b.counters().rcvd_pkts, 1u);
  for (std::size_t i = 1; i < packets.size(); ++i) EXPECT_TRUE(deliver_open(pair, pair.b, packets[i]));
  EXPECT_EQ(std::memcmp(pair.b.at(0), pair.a.at(0), 1000), 0);
  EXPECT_EQ(std::memcmp(pair.b.at(1000), &before[1000], 4096 - 1000), 0);
}

TEST(DirectPlacement, EndOfAWriteIsHeldBackUntilItsIcrcIsGood) {
  OpenWrite write(1024);
  auto& [pair, before, packets] = write;
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(deliver_open(pair, pair.b, packets[i]));
  EXPECT_FALSE(deliver_open(pair, pair.b, packets[3], true));
  const std::size_t held_from = 1024 - kDeferredTail;
  EXPECT_EQ(std::memcmp(pair.b.at(0), pair.a.at(0), 768), 0);
  EXPECT_EQ(std::memcmp(pair.b.at(held_from), &before[held_from], 4096 - held_from), 0);
  EXPECT_TRUE(deliver_open(pair, pair.b, packets[3]));
  EXPECT_EQ(std::memcmp(pair.b.at(0), pair.a.at(0), 1024), 0);
}

TEST(DirectPlacement, EndOfAWriteWithImmediateWaitsForItsReceive) {
  OpenWrite write(1024, UROCE_WR_RDMA_WRITE_WITH_IMM);
  auto& [pair, before, packets] = write;
  for (const Packet& packet : packets) EXPECT_TRUE(deliver_open(pair, pair.b, packet));
  EXPECT_EQ(pair.b.counters().rnr_nak_sent, 1u);
  EXPECT_EQ(std::memcmp(pair.b.at(768), &before[768], 256), 0);
}

/// The responses to a READ, in flight to memory with other contents.
struct OpenRead {
  explicit OpenRead(std::uint32_t bytes) {
    pair.a.fill(0, 4096, 1);
    pair.b.fill(0, 4096, 2);
    before.assign(pair.a.at(0), pair.a.at(4096));
    pair.a.post(work_of(pair, UROCE_WR_RDMA_READ, bytes));
    for (const Packet& request : pair.take(pair.a)) pair.deliver(pair.b, request);
    packets = pair.take(pair.b);
    EXPECT_EQ(packets.size(), 4u);
  }
  /// Whether memory from `at` on is as it was.
  bool untouched_from(std::size_t at) { return std::memcmp(pair.a.at(at), &before[at], before.size() - at) == 0; }
  Pair pair;
  std::vector<std::byte> before;
  std::vector<Packet> packets;
};

TEST(DirectPlacement, OfAReadChangesNothingElseUntilTheIcrcIsGood) {
  OpenRead read(1000);
  auto& [pair, before, packets] = read;
  EXPECT_TRUE(deliver_open(pair, pair.a, packets[0]));
  EXPECT_FALSE(deliver_open(pair, pair.a, packets[2], true));
  EXPECT_TRUE(read.untouched_from(kPathMtu));
  EXPECT_FALSE(deliver_open(pair, pair.a, packets[1], true));
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(0), kPathMtu), 0);
  EXPECT_TRUE(read.untouched_from(2 * kPathMtu));
  for (std::size_t i = 1; i < packets.size(); ++i) EXPECT_TRUE(deliver_open(pair, pair.a, packets[i]));
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(0), 1000), 0);
  EXPECT_TRUE(read.untouched_from(1000));
  EXPECT_EQ(pair.a.poll().size(), 1u);
}

TEST(DirectPlacement, HoldsTheEndOfAReadBackUntilItsIcrcIsGood) {
  OpenRead read(1024);
  auto& [pair, before, packets] = read;
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(deliver_open(pair, pair.a, packets[i]));
  EXPECT_FALSE(deliver_open(pair, pair.a, packets[3], true));
  EXPECT_TRUE(read.untouched_from(1024 - kDeferredTail));
  EXPECT_TRUE(deliver_open(pair, pair.a, packets[3]));
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(0), 1024), 0);
}

// The oldest request is a WRITE, whose list must not take the payload.
TEST(DirectPlacement, OfAnAnswerNeedsItsReadToBeTheOldestRequest) {
  Pair pair;
  pair.a.fill(0, 8192, 1);
  const std::vector<std::byte> before(pair.a.at(0), pair.a.at(8192));
  pair.a.post(work_of(pair, UROCE_WR_RDMA_WRITE, 2 * kPathMtu));
  Work read = work_of(pair, UROCE_WR_RDMA_READ, 4 * kPathMtu);
  read.sges = {pair.a.sge(4096, 4 * kPathMtu)};
  pair.a.post(read);
  for (const Packet& request : pair.take(pair.a)) pair.deliver(pair.b, request);
  std::vector<Packet> answers = pair.take(pair.b);
  ASSERT_EQ(answers.size(), 4u);
  for (Packet* packet : {&answers[1], &answers[2]}) {
    for (const std::uint32_t psn : {100u, 101u, 102u}) {  // of the WRITE, and the first of the READ
      std::byte* const last_word = const_cast<std::byte*>(packet->rx.bth_start) + 8;
      wire::store32(last_word, psn);
      EXPECT_FALSE(deliver_open(pair, pair.a, *packet));
      EXPECT_EQ(std::memcmp(pair.a.at(0), before.data(), before.size()), 0) << psn;
    }
  }
}

}  // namespace
}  // namespace uroce::proto::test
