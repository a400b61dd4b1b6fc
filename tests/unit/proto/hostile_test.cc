// Memory safety against clients and peers that do what no program does: entries that change while they are read,
// too many elements, addresses at the ends of the address space, work requests after an error.
#include <atomic>
#include <thread>

#include "proto/state/qp.h"
#include "proto/work/receive_queue.h"
#include "tests/unit/proto/pair.h"
#include "wire/extended_headers.h"

#if defined(__SANITIZE_THREAD__)
#define UROCE_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UROCE_THREAD_SANITIZER 1
#endif
#endif

namespace uroce::proto::test {
namespace {

constexpr std::uint64_t kTop = ~std::uint64_t{0};

uroce_sge receive_sge(const Pair& pair, std::uint64_t at, std::uint32_t length) {
  return {End::kIova + at, length, pair.b.srq ? pair.b.srq_key.value : pair.b.key.value};
}

Work write_of(Pair& pair, std::uint32_t bytes, std::uint64_t to = 0) {
  return {.opcode = UROCE_WR_RDMA_WRITE,
          .sges = {pair.a.sge(0, bytes)},
          .remote = End::kIova + to,
          .rkey = pair.b.key.value};
}

std::uint8_t only_status(Pair& pair) {
  const auto sent = pair.a.poll();
  return sent.size() == 1 ? sent[0].status : 0xff;
}

// ---------------------------------------------------------------- entries of receive queues

class ReceiveRings : public testing::TestWithParam<bool> {};

TEST_P(ReceiveRings, AnEntryOverwrittenAmidItsMessageChangesNothing) {
  Options options;
  options.srq = GetParam();
  options.entries = 2;
  Pair pair({}, options);
  pair.a.fill(0, 600, 9);
  pair.b.post_receive(1, {receive_sge(pair, 0, 300), receive_sge(pair, 4096, 400)});
  pair.a.post({.sges = {pair.a.sge(0, 600)}});
  const auto packets = pair.take(pair.a);
  ASSERT_EQ(packets.size(), 3u);
  pair.deliver(pair.b, packets[0]);
  // The slot is the client's again: twice round the ring of 2.
  for (std::uint64_t i = 2; i < 4; ++i) {
    pair.b.post_receive(i, std::vector<uroce_sge>(200, receive_sge(pair, 100'000, 0xffffffff)));
  }
  pair.deliver(pair.b, packets[1]);
  pair.deliver(pair.b, packets[2]);
  const auto received = pair.b.poll(true);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].wr_id, 1u);
  EXPECT_EQ(received[0].status, UROCE_WC_SUCCESS);
  EXPECT_EQ(received[0].byte_len, 600u);
  EXPECT_EQ(std::memcmp(pair.b.at(0), pair.a.at(0), 300), 0);
  EXPECT_EQ(std::memcmp(pair.b.at(4096), pair.a.at(300), 300), 0);
  EXPECT_EQ(*pair.b.at(100'000), std::byte{0});
}

TEST_P(ReceiveRings, OneElementMoreThanTheQueueWasMadeForIsRefused) {
  // Rounded up to a power of 2, the ring's entries have room for more elements than max_sge.
  for (const std::uint32_t more : {0u, 1u, 2u}) {
    Options options;
    options.srq = GetParam();
    Pair pair({}, options);
    std::vector<uroce_sge> sges(options.max_sge + more, receive_sge(pair, 0, 8));
    pair.b.post_receive(1, sges);
    pair.a.post({.sges = {pair.a.sge(0, 8)}});
    pair.run();
    EXPECT_EQ(only_status(pair), more == 0 ? UROCE_WC_SUCCESS : UROCE_WC_REM_OP_ERR) << more;
    EXPECT_EQ(pair.b.poll(true).at(0).status, more == 0 ? UROCE_WC_SUCCESS : UROCE_WC_LOC_QP_OP_ERR) << more;
    EXPECT_EQ(pair.b.counters().bad_wqe_sge_count, more == 0 ? 0u : 1u);
  }
}

INSTANTIATE_TEST_SUITE_P(Queues, ReceiveRings, testing::Bool(),
                         [](const auto& param) { return param.param ? "Shared" : "Own"; });

#ifndef UROCE_THREAD_SANITIZER  // the client races on purpose
TEST(SharedReceiveRing, AnEntryThatChangesWhileItIsCopiedIsUsedAsItWasChecked) {
  constexpr std::uint32_t kMaxElements = 2, kStride = 1024, kRounds = 200'000;
  struct alignas(64) Line {
    std::byte bytes[kStride];
  };
  std::vector<Line> ring(1);
  std::uint32_t producer = 0, consumer = 0;
  const queue::RingShape shape{ring[0].bytes, 1, kStride};
  Srq srq({.id = kSrq,
           .pd = kSrqPd,
           .ring = queue::WorkConsumer(shape, &producer, &consumer),
           .max_sge = kMaxElements});
  reinterpret_cast<uroce_rq_entry*>(ring[0].bytes)->num_sge = kMaxElements;
  std::atomic<bool> stop{false};
  std::thread client([&] {
    auto& entry = *reinterpret_cast<uroce_rq_entry*>(ring[0].bytes);
    const std::atomic_ref count(entry.num_sge);
    for (std::uint32_t i = 0; !stop.load(std::memory_order_relaxed); ++i) {
      count.store(i % 2 == 0 ? kMaxElements : 0xffffffff - i % 7, std::memory_order_relaxed);
    }
  });
  struct {
    ReceiveWqe wqe;
    std::uint64_t after[64];
  } taken;
  std::fill_n(taken.after, 64, kTop);
  std::uint32_t good = 0, bad = 0;
  for (std::uint32_t i = 0; i < kRounds || good == 0 || bad == 0; ++i) {
    std::atomic_ref(producer).store(i + 1, std::memory_order_release);
    bool limit = false;
    const FetchResult result = srq.take(taken.wqe, limit);
    EXPECT_NE(result, FetchResult::kNone);
    EXPECT_EQ(taken.wqe.num_sge, result == FetchResult::kOk ? kMaxElements : 0u);
    if (testing::Test::HasFailure()) break;
    ++(result == FetchResult::kOk ? good : bad);
    if (i % 1000 == 0) std::this_thread::yield();
  }
  stop = true;
  client.join();
  for (const std::uint64_t word : taken.after) ASSERT_EQ(word, kTop);
}
#endif

// ---------------------------------------------------------------- entries of send queues

TEST(SendRing, OneElementMoreThanTheQueueWasMadeForIsRefused) {
  for (const std::uint32_t more : {0u, 1u, 2u}) {
    Pair pair;
    uroce_sq_entry entry{};
    entry.opcode = UROCE_WR_RDMA_WRITE;
    entry.flags = UROCE_SEND_SIGNALED;
    entry.num_sge = static_cast<std::uint16_t>(pair.a.options.max_sge + more);
    entry.remote_addr = End::kIova;
    entry.rkey = pair.b.key.value;
    pair.a.post_raw(entry, std::vector<uroce_sge>(entry.num_sge, pair.a.sge(0, 8)));
    pair.run();
    EXPECT_EQ(only_status(pair), more == 0 ? UROCE_WC_SUCCESS : UROCE_WC_LOC_QP_OP_ERR) << more;
  }
}

TEST(SendRing, AnEntryOverwrittenWhileItIsSentAgainChangesNothing) {
  Options options;
  options.entries = 2;
  Pair pair(options);
  pair.a.fill(0, 600, 3);
  pair.a.post(write_of(pair, 600));
  ASSERT_EQ(pair.take(pair.a).size(), 3u);  // lost
  // The entry is in use and its slot is not free; this client writes it all the same.
  pair.a.overwrite_send_ring(std::byte{0xff});
  pair.settle(kSecond);
  EXPECT_EQ(only_status(pair), UROCE_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(pair.b.at(0), pair.a.at(0), 600), 0);
}

// ---------------------------------------------------------------- the end of the address space

/// b has a region whose last byte is the last of all addresses.
struct Top {
  static constexpr std::uint32_t kBytes = 4096;
  Top() {
    key = *pair.b.table.insert({.pd = pair.b.pd,
                                .access = kAllAccess | memory::kFlushGlobal,
                                .iova = kTop - (kBytes - 1),
                                .length = kBytes,
                                .base = pair.b.memory.data()});
  }
  std::uint8_t request(std::uint8_t opcode, std::uint64_t remote, std::uint32_t bytes) {
    Work work{.opcode = opcode, .sges = {pair.a.sge(0, bytes)}, .remote = remote, .rkey = key.value};
    if (opcode == UROCE_WR_FLUSH) {
      work.sges.clear();
      work.flush = uroce_wr_flush{1, 0, bytes};
    }
    pair.a.post(work);
    pair.run();
    return only_status(pair);
  }
  static Options flushing() {
    Options options;
    options.access = kAllAccess | memory::kFlushGlobal;
    return options;
  }
  Pair pair{flushing()};
  Key key;
};

TEST(AddressSpace, RangesThatPassItsEndAreRefusedByEachOperation) {
  for (const std::uint8_t opcode :
       {UROCE_WR_RDMA_WRITE, UROCE_WR_RDMA_READ, UROCE_WR_FLUSH, UROCE_WR_ATOMIC_FETCH_AND_ADD,
        UROCE_WR_ATOMIC_CMP_AND_SWP, UROCE_WR_ATOMIC_WRITE}) {
    EXPECT_EQ(Top().request(opcode, kTop - 7, 8), UROCE_WC_SUCCESS) << int{opcode};
    if (opcode >= UROCE_WR_ATOMIC_CMP_AND_SWP && opcode != UROCE_WR_FLUSH && opcode != UROCE_WR_RDMA_READ) continue;
    Top top;
    EXPECT_EQ(top.request(opcode, kTop - 7, 9), UROCE_WC_REM_ACCESS_ERR) << int{opcode};
    EXPECT_EQ(top.pair.b.memory, std::vector<std::byte>(End::kMemory)) << "nothing was written";
    // Far enough to come round to address 0 by 2 GiB.
    if (opcode != UROCE_WR_FLUSH) continue;
    EXPECT_EQ(Top().request(opcode, kTop - 7, 0x7fffffff), UROCE_WC_REM_ACCESS_ERR) << int{opcode};
  }
}

TEST(AddressSpace, ALongRangeThatPassesItsEndIsRefusedByItsFirstPacket) {
  for (const std::uint8_t opcode : {UROCE_WR_RDMA_WRITE, UROCE_WR_RDMA_READ}) {
    Top top;
    top.pair.a.fill(0, 600, 1);
    top.pair.a.post(
        {.opcode = opcode, .sges = {top.pair.a.sge(0, 600)}, .remote = kTop - 999, .rkey = top.key.value});
    auto packets = top.pair.take(top.pair.a);
    const auto bth = static_cast<std::size_t>(packets.at(0).rx.bth_start - packets[0].bytes.data());
    const std::uint32_t length = big_endian(0x7fffffff);  // round to address 0 and on by 2 GiB
    std::memcpy(&packets[0].bytes[bth + packets[0].rx.info->reth + 12], &length, sizeof length);
    ASSERT_EQ(packets[0].reth().length, 0x7fffffffu);
    for (const Packet& packet : packets) top.pair.deliver(top.pair.b, packet);
    EXPECT_TRUE(top.pair.take(top.pair.b).at(0).is_nak(wire::Nak::kRemoteAccess)) << int{opcode};
    EXPECT_EQ(top.pair.b.memory, std::vector<std::byte>(End::kMemory));
  }
}

TEST(Requests, WithReservedOpcodesAndWrongLengthsAreInvalid) {
  // READ_REQUEST and FLUSH are shorter than this packet, CMP_SWAP is longer.
  for (const int opcode : {0x15, 0x18, 0x19, 0x1a, 0x1b, 0x1e, 0x1f, 0x0c, 0x1c, 0x13}) {
    Pair pair;
    pair.a.post(write_of(pair, 8));
    auto packets = pair.take(pair.a);
    Packet& packet = packets.at(0);
    packet.bytes[static_cast<std::size_t>(packet.rx.bth_start - packet.bytes.data())] =
        static_cast<std::byte>(opcode);
    ASSERT_EQ(wire::parse(packet.bytes, {.check_icrc = false}, packet.rx), wire::ParseVerdict::kOk) << opcode;
    pair.deliver(pair.b, packet);
    EXPECT_TRUE(pair.take(pair.b).at(0).is_nak(wire::Nak::kInvalidRequest)) << opcode;
    EXPECT_EQ(pair.b.counters().resp_invalid_requests, 1u) << opcode;
    EXPECT_EQ(pair.b.snapshot().state, QpState::kErr) << opcode;
  }
}

TEST(AddressSpace, ALocalRangeThatPassesItsEndIsAProtectionError) {
  Pair pair;
  const Key key = *pair.a.table.insert(
      {.pd = pair.a.pd, .access = kAllAccess, .iova = kTop - 4095, .length = 4096, .base = pair.a.memory.data()});
  for (const std::uint32_t bytes : {8u, 9u}) {
    Work work = write_of(pair, bytes);
    work.sges = {{kTop - 7, bytes, key.value}};
    pair.a.post(work);
    pair.run();
    EXPECT_EQ(only_status(pair), bytes == 8 ? UROCE_WC_SUCCESS : UROCE_WC_LOC_PROT_ERR);
  }
}

TEST(AddressSpace, AReceiveThatPassesItsEndIsAProtectionError) {
  Pair pair;
  const Key key = *pair.b.table.insert(
      {.pd = pair.b.pd, .access = kAllAccess, .iova = kTop - 4095, .length = 4096, .base = pair.b.memory.data()});
  pair.b.post_receive(1, {{kTop - 7, 64, key.value}});
  pair.a.post({.sges = {pair.a.sge(0, 64)}});
  pair.run();
  EXPECT_EQ(only_status(pair), UROCE_WC_REM_OP_ERR);
  EXPECT_EQ(pair.b.poll(true).at(0).status, UROCE_WC_LOC_PROT_ERR);
}

// ---------------------------------------------------------------- eight bytes at once

TEST(AtomicWord, NeedsAllItsBytesInTheRegion) {
  for (const std::uint8_t opcode :
       {UROCE_WR_ATOMIC_WRITE, UROCE_WR_ATOMIC_FETCH_AND_ADD, UROCE_WR_ATOMIC_CMP_AND_SWP}) {
    for (const std::uint32_t length : {16u, 12u, 9u, 8u}) {
      Pair pair;
      pair.a.fill(0, 8, 5);
      const Key key = *pair.b.table.insert(
          {.pd = pair.b.pd, .access = kAllAccess, .iova = 0x8000, .length = length, .base = pair.b.at(4096)});
      pair.a.post({.opcode = opcode,
                   .sges = {pair.a.sge(0, 8)},
                   .remote = 0x8008,
                   .rkey = key.value,
                   .compare_add = opcode == UROCE_WR_ATOMIC_FETCH_AND_ADD ? 77u : 0u,
                   .swap = 78});
      pair.run();
      EXPECT_EQ(only_status(pair), length == 16 ? UROCE_WC_SUCCESS : UROCE_WC_REM_ACCESS_ERR) << length;
      const std::vector<std::byte> none(64);
      EXPECT_EQ(std::memcmp(pair.b.at(4096), none.data(), 8), 0) << "before it";
      EXPECT_EQ(std::memcmp(pair.b.at(4096 + 8), none.data(), 8) != 0, length == 16) << length;
      EXPECT_EQ(std::memcmp(pair.b.at(4096 + 16), none.data(), 48), 0) << "after it";
    }
  }
}

TEST(AtomicWord, MayLieAtAnyAddressOfTheMemory) {
  // Its address in the region is a multiple of 8; where the region begins in memory is the client's choice.
  for (std::uint64_t shift = 0; shift < 8; ++shift) {
    Pair pair;
    pair.a.fill(0, 8, 5);
    const Key key = *pair.b.table.insert(
        {.pd = pair.b.pd, .access = kAllAccess, .iova = 0x8000, .length = 8, .base = pair.b.at(4096 + shift)});
    pair.a.post({.opcode = UROCE_WR_ATOMIC_WRITE, .sges = {pair.a.sge(0, 8)}, .remote = 0x8000, .rkey = key.value});
    pair.run();
    EXPECT_EQ(only_status(pair), UROCE_WC_SUCCESS) << shift;
    EXPECT_EQ(std::memcmp(pair.b.at(4096 + shift), pair.a.at(0), 8), 0) << shift;
    EXPECT_EQ(*pair.b.at(4095 + shift), std::byte{0});
    EXPECT_EQ(*pair.b.at(4104 + shift), std::byte{0});
  }
}

// ---------------------------------------------------------------- windows of others

TEST(ForeignWindow, NeitherItNorTheRegionBelowMayBeOfAnotherDomain) {
  const PdId other{77};
  for (const int foreign : {0, 1, 2}) {  // neither, the window, the region
    Pair pair;
    const Key window = *pair.b.table.allocate_window(foreign == 1 ? other : pair.b.pd, memory::Kind::kWindow2);
    const Key mr = *pair.b.table.insert({.pd = foreign == 2 ? other : pair.b.pd,
                                         .access = kAllAccess | memory::kMwBind,
                                         .iova = End::kIova,
                                         .length = 4096,
                                         .base = pair.b.memory.data()});
    const Key bound{(window.value & ~0xffu) | ((window.value + 1) & 0xff)};
    Work work{.opcode = UROCE_WR_BIND_MW, .remote = End::kIova, .rkey = bound.value};
    work.handle = window.value;
    work.bind = uroce_wr_bind{mr.value, memory::kRemoteWrite, 64};
    pair.b.post(work);
    pair.run();
    EXPECT_EQ(pair.b.poll().at(0).status, foreign == 0 ? UROCE_WC_SUCCESS : UROCE_WC_MW_BIND_ERR) << foreign;
    memory::Span span;
    for (const PdId pd : {pair.b.pd, other}) {
      const auto verdict = pair.b.table.resolve(bound, pd, End::kIova, 8, memory::kRemoteWrite, span, pair.b.qpn);
      EXPECT_EQ(verdict == memory::Verdict::kOk, foreign == 0 && pd == pair.b.pd) << foreign;
    }
  }
}

// ---------------------------------------------------------------- shared queues that go

TEST(XrcSharedQueue, MayBeDestroyedAmidAMessage) {
  for (const bool fails : {false, true}) {
    Pair pair = Pair::of(QpType::kXrcSend);
    pair.b.post_receive(1, {{End::kIova, 600, pair.b.srq_key.value}});
    pair.a.post({.sges = {pair.a.sge(0, 600)}});
    const auto packets = pair.take(pair.a);
    ASSERT_EQ(packets.size(), 3u);
    pair.deliver(pair.b, packets[0]);
    pair.b.transport->set_srq(kSrq, nullptr);
    pair.b.srq.reset();
    if (fails) {
      ASSERT_EQ(pair.b.to(QpState::kErr, pair.now).error, 0);
    }
    pair.deliver(pair.b, packets[1]);
    pair.deliver(pair.b, packets[2]);
    EXPECT_TRUE(pair.b.poll(true).empty()) << "its CQ may be another's by now";
    EXPECT_EQ(pair.take(pair.b).size(), fails ? 0u : 1u);
    pair.a.post({.sges = {pair.a.sge(0, 8)}});
    pair.settle(10 * kSecond);
    EXPECT_EQ(pair.b.snapshot().state, QpState::kErr);
  }
}

TEST(XrcSharedQueue, OneOfAnotherDomainUnderItsNumberGetsNothingOfTheMessage) {
  Pair pair = Pair::of(QpType::kXrcSend);
  pair.a.post({.opcode = UROCE_WR_RDMA_WRITE_WITH_IMM,
               .sges = {pair.a.sge(0, 600)},
               .remote = End::kIova,
               .rkey = pair.b.srq_key.value});
  const auto packets = pair.take(pair.a);
  ASSERT_EQ(packets.size(), 3u);
  pair.deliver(pair.b, packets[0]);
  alignas(64) std::byte ring[64] = {};
  std::uint32_t producer = 1, consumer = 0;  // a receive is posted
  Srq other({.id = kSrq,
             .pd = PdId{99},
             .xrc = true,
             .xrcd = kXrcd,
             .ring = queue::WorkConsumer({ring, 1, 64}, &producer, &consumer),
             .max_sge = 1});
  pair.b.transport->set_srq(kSrq, &other);
  pair.deliver(pair.b, packets[1]);
  pair.deliver(pair.b, packets[2]);
  EXPECT_EQ(other.posted(), 1u);
  EXPECT_TRUE(pair.b.poll(true).empty());
  EXPECT_EQ(pair.take(pair.b).at(0).aeth().syndrome & 0x60, 0x20) << "RNR NAK";
}

// ---------------------------------------------------------------- after an error

TEST(AfterAnError, NoWorkIsExecutedAgain) {
  Pair pair;
  pair.a.fill(0, 8, 5);
  pair.a.post(write_of(pair, 8, 0));
  Work bad = write_of(pair, 8, 64);
  bad.rkey ^= 0x100;
  pair.a.post(bad);
  pair.a.post(write_of(pair, 8, 128));
  pair.run();
  ASSERT_EQ(pair.a.poll().size(), 3u);
  const auto packets = std::move(pair.log);
  pair.log.clear();
  // Neither by time, nor by a doorbell, nor by late duplicates of what was sent.
  for (int i = 0; i < 3; ++i) {
    std::memset(pair.b.at(0), 0, 256);
    pair.a.ring();
    for (const Packet& packet : packets) {
      pair.deliver(pair.a, packet);
      pair.deliver(pair.b, packet);
    }
    pair.settle(10 * kSecond);
    EXPECT_EQ(pair.b.memory, std::vector<std::byte>(End::kMemory));
  }
  EXPECT_TRUE(pair.log.empty());
  EXPECT_TRUE(pair.a.poll().empty());
}

TEST(AfterAnError, AResetLeavesNothingOfTheOldWorks) {
  Pair pair;
  pair.a.fill(0, 600, 5);
  for (int i = 0; i < 3; ++i) pair.a.post(write_of(pair, 600));
  ASSERT_FALSE(pair.take(pair.a).empty());
  ASSERT_EQ(pair.a.to(QpState::kErr, pair.now).error, 0);
  ASSERT_EQ(pair.a.to(QpState::kReset, pair.now).error, 0);
  connect(pair.a, {pair.b.qpn, 100, pair.b.path.source, pair.b.path.source_mac}, pair.now);
  pair.a.poll();
  pair.settle(10 * kSecond);
  EXPECT_TRUE(pair.log.empty());
  EXPECT_TRUE(pair.a.poll().empty());
  pair.a.post(write_of(pair, 8));
  pair.run();
  EXPECT_EQ(only_status(pair), UROCE_WC_SUCCESS);
}

TEST(AfterAnError, ResetAndDestructionDropTheAnswersThatArePending) {
  for (const bool destroys : {false, true}) {
    Pair pair;
    pair.a.post({.opcode = UROCE_WR_RDMA_READ,
                 .sges = {pair.a.sge(0, 4000)},
                 .remote = End::kIova,
                 .rkey = pair.b.key.value});
    for (const Packet& packet : pair.take(pair.a)) pair.deliver(pair.b, packet);
    if (destroys) {
      pair.b.transport->destroy(pair.b.qp, pair.now);
    } else {
      ASSERT_EQ(pair.b.to(QpState::kReset, pair.now).error, 0);
    }
    EXPECT_TRUE(pair.take(pair.b).empty());
    pair.b.transport->advance(pair.now + kSecond);
    EXPECT_TRUE(pair.take(pair.b).empty());
    EXPECT_EQ(pair.b.transport->next_timeout(), kNever);
  }
}

}  // namespace
}  // namespace uroce::proto::test
