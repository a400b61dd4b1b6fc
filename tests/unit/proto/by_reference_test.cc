// Packets between QPs of one process that name their payload: the same results as with payload, and what becomes of
// memory that goes while it is named.
#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "proto/work/by_reference.h"
#include "tests/unit/proto/local_pair.h"

namespace uroce::proto::test {
namespace {

/// Of one device, and of two.
class ByReference : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override { LocalPair::apart = GetParam(); }
  void TearDown() override { LocalPair::apart = false; }
};

Options with_mtu(std::uint32_t mtu) {
  Options options;
  options.mtu = mtu;
  options.psn = 0xfffff0;  // the PSNs wrap
  return options;
}

std::vector<uroce_sge> cut(const End& end, std::uint64_t at, const std::vector<std::uint32_t>& lengths) {
  std::vector<uroce_sge> list;
  for (const std::uint32_t length : lengths) {
    list.push_back(end.sge(at, length));
    at += length + 64;
  }
  return list;
}

std::vector<std::byte> contents(End& end, const std::vector<uroce_sge>& list) {
  std::vector<std::byte> all;
  for (const uroce_sge& sge : list) {
    const std::byte* const from = end.at(sge.addr - End::kIova);
    all.insert(all.end(), from, from + sge.length);
  }
  return all;
}

Work write_of(LocalPair& pair, const std::vector<uroce_sge>& from) {
  return {.opcode = UROCE_WR_RDMA_WRITE, .sges = from, .remote = End::kIova, .rkey = pair.b.key.value};
}
Work read_of(LocalPair& pair, const std::vector<uroce_sge>& to) {
  return {.opcode = UROCE_WR_RDMA_READ, .sges = to, .remote = End::kIova, .rkey = pair.b.key.value};
}

const std::vector<std::vector<std::uint32_t>> kLists = {{1024},
                                                        {1025},
                                                        {4096},
                                                        {4097},
                                                        {32768},
                                                        {32769},
                                                        {65536},
                                                        {65537},
                                                        {100'000},
                                                        {1, 5000},
                                                        {5000, 1},
                                                        {0, 4096, 0, 7000},
                                                        {1023, 1, 1024, 40'000},
                                                        {3000, 3000, 3000, 3000}};

TEST_P(ByReference, CarriesWhatPayloadCarries) {
  for (const std::uint32_t mtu : {256u, 1024u, 4096u}) {
    for (const auto& lengths : kLists) {
      LocalPair pair(with_mtu(mtu));
      std::uint32_t bytes = 0;
      for (const std::uint32_t length : lengths) bytes += length;
      const std::uint32_t packets = (bytes + mtu - 1) / mtu;
      const auto list = cut(pair.a, 0, lengths), landing = cut(pair.b, 500'000, {bytes / 3, bytes - bytes / 3});
      pair.a.fill(0, 200'000, 3);
      pair.a.post(write_of(pair, list));
      pair.b.post_receive(7, landing);
      pair.a.post({.wr_id = 2, .opcode = UROCE_WR_SEND_WITH_IMM, .sges = list, .imm = 99});
      pair.run();
      const auto expected = contents(pair.a, list);
      EXPECT_EQ(contents(pair.b, {pair.b.sge(0, bytes)}), expected);
      EXPECT_EQ(contents(pair.b, landing), expected);
      const auto received = pair.b.poll(true);
      ASSERT_EQ(received.size(), 1u);
      EXPECT_EQ(received[0].byte_len, bytes);

      pair.b.fill(0, 200'000, 5);
      pair.a.post(read_of(pair, list));
      pair.run();
      EXPECT_EQ(contents(pair.a, list), contents(pair.b, {pair.b.sge(0, bytes)}));
      const auto completions = pair.a.poll();
      ASSERT_EQ(completions.size(), 3u);
      for (const uroce_cqe& cqe : completions) EXPECT_EQ(cqe.status, UROCE_WC_SUCCESS);
      EXPECT_GE(pair.by_reference(), lengths.size() == 1 ? 3u : 1u) << mtu << " " << bytes;
      EXPECT_EQ(pair.sum(&Counters::retransmitted_pkts), 0u);
      EXPECT_EQ(pair.a.snapshot().attr.sq_psn.value(), (0xfffff0 + 3 * packets) & 0xffffff);
      EXPECT_EQ(pair.a.snapshot().counters.sent_pkts + pair.b.snapshot().counters.sent_pkts,
                pair.sum(&Counters::sent_pkts));
    }
  }
}

// Who sees the count of a READ may reuse its memory at once.
TEST_P(ByReference, CopiesReadsOfAQpThatCountsThem) {
  LocalPair pair(with_mtu(1024));
  QpCompletionCounters table{};
  uroce_comp_cntr count{};
  for (End* const end : {&pair.a, &pair.b}) ASSERT_EQ(end->to(QpState::kReset, pair.now).error, 0);
  ASSERT_EQ(pair.b.transport->attach_counter(pair.b.qp, table, UROCE_COUNTED_REMOTE_READ, {&count, true}), 0);
  connect(pair.a, {pair.b.qpn, pair.b.options.psn, pair.b.path.source, pair.b.path.source_mac}, pair.now);
  connect(pair.b, {pair.a.qpn, pair.a.options.psn, pair.a.path.source, pair.a.path.source_mac}, pair.now);
  pair.b.fill(0, 8192, 5);
  const auto expected = contents(pair.b, {pair.b.sge(0, 8192)});
  pair.a.post(read_of(pair, {pair.a.sge(0, 8192)}));
  pair.run([&](const Sent&) {
    if (count.done == 8192) pair.b.fill(0, 8192, 6);
    return true;
  });
  EXPECT_EQ(count.done, 8192u);
  EXPECT_EQ(contents(pair.a, {pair.a.sge(0, 8192)}), expected);
}

// Both ends may be the same program, and both ranges the same memory.
TEST(ByReferenceOfOneDevice, RangesMayOverlap) {
  LocalPair pair(with_mtu(1024));
  pair.a.fill(0, 8192, 3);
  const auto before = contents(pair.a, {pair.a.sge(0, 8192)});
  Work work = write_of(pair, {pair.a.sge(0, 8192)});
  work.remote = End::kIova + 100;
  work.rkey = pair.a.key.value;
  pair.a.post(work);
  pair.run();
  EXPECT_EQ(pair.by_reference(), 1u);
  EXPECT_EQ(contents(pair.a, {pair.a.sge(100, 8192)}), before);
}

TEST_P(ByReference, CountsThePacketsOfAWire) {
  Options options = with_mtu(1024);
  Pair apart(options);
  LocalPair together(options);
  apart.a.post({.opcode = UROCE_WR_RDMA_WRITE,
                .sges = {apart.a.sge(0, 8192)},
                .remote = End::kIova,
                .rkey = apart.b.key.value});
  apart.run();
  together.a.post(write_of(together, {together.a.sge(0, 8192)}));
  together.run();
  EXPECT_EQ(together.by_reference(), 1u);
  EXPECT_EQ(together.a.snapshot().counters.sent_pkts, apart.a.snapshot().counters.sent_pkts);
  EXPECT_EQ(together.b.snapshot().counters.rcvd_pkts, apart.b.snapshot().counters.rcvd_pkts);
  EXPECT_EQ(together.sum(&Counters::rx_write_requests), 1u);
}

TEST_P(ByReference, CopiesWhatIsShortInlineOrLimited) {
  LocalPair pair(with_mtu(1024));
  pair.a.post(write_of(pair, {pair.a.sge(0, kMinReference - 1)}));
  Work work = write_of(pair, {});
  work.inline_data.resize(100);
  pair.a.post(work);
  pair.run();
  EXPECT_EQ(pair.by_reference(), 0u);
  pair.allow(false);
  pair.a.post(write_of(pair, {pair.a.sge(0, 50'000)}));
  pair.run();
  EXPECT_EQ(pair.by_reference(), 0u);
  pair.allow(true);
  pair.a.post(write_of(pair, {pair.a.sge(0, 50'000)}));
  pair.run();
  EXPECT_GE(pair.by_reference(), 2u);
  EXPECT_EQ(pair.a.poll().size(), 4u);
}

TEST_P(ByReference, TakesNoMoreThanATurn) {
  Options options = with_mtu(256);
  options.quantum = 5;
  LocalPair pair(options);
  pair.a.post(write_of(pair, {pair.a.sge(0, 50'000)}));
  pair.a.post(read_of(pair, {pair.a.sge(0, 50'000)}));
  pair.run();
  EXPECT_EQ(pair.a.poll().size(), 2u);
  EXPECT_GE(pair.by_reference(), 50'000u / 256 / 5);
  for (const Sent& sent : pair.log) EXPECT_LE(sent.packets, 5u);
}

// Each frame once: it is sent again with its payload, and nothing else changes.
TEST_P(ByReference, ALostOneIsSentAgainWithPayload) {
  for (const std::uint8_t opcode : {UROCE_WR_RDMA_WRITE, UROCE_WR_SEND, UROCE_WR_RDMA_READ}) {
    for (std::size_t lost = 0; lost < 6; ++lost) {
      LocalPair pair(with_mtu(1024));
      pair.a.fill(0, 120'000, 1);
      pair.b.fill(0, 120'000, opcode == UROCE_WR_RDMA_READ ? 2 : 0);
      pair.b.post_receive(1, {pair.b.sge(0, 120'000)});
      Work work = opcode == UROCE_WR_RDMA_READ ? read_of(pair, {pair.a.sge(0, 120'000)})
                                               : write_of(pair, {pair.a.sge(0, 120'000)});
      work.opcode = opcode;
      pair.a.post(work);
      std::size_t count = 0;
      pair.settle([&](const Sent&) { return count++ != lost; });
      const auto completions = pair.a.poll();
      ASSERT_EQ(completions.size(), 1u) << int{opcode} << " " << lost;
      EXPECT_EQ(completions[0].status, UROCE_WC_SUCCESS);
      EXPECT_EQ(contents(pair.a, {pair.a.sge(0, 120'000)}), contents(pair.b, {pair.b.sge(0, 120'000)}));
    }
  }
}

TEST_P(ByReference, EndsWithDifferentMtusAreRefusedAsWithPayload) {
  for (const bool references : {false, true}) {
    LocalPair pair(with_mtu(1024), with_mtu(4096));
    pair.allow(references);
    pair.a.post(write_of(pair, {pair.a.sge(0, 8192)}));
    pair.settle();
    const auto completions = pair.a.poll();
    ASSERT_EQ(completions.size(), 1u);
    EXPECT_EQ(completions[0].vendor_err, UROCE_FAIL_NAK_REQUEST);
  }
}

/// Memory of a's or b's client with a key of its own.
struct Extra {
  Extra(End& owner, std::uint64_t at, memory::Loss* loss)
      : key(*owner.table.insert({.pd = owner.pd,
                                 .access = kAllAccess,
                                 .iova = End::kIova,
                                 .length = 60'000,
                                 .base = owner.at(at),
                                 .loss = loss})) {}
  uroce_sge sge(std::uint32_t bytes) const { return {End::kIova, bytes, key.value}; }
  Key key;
};

TEST_P(ByReference, AKeyThatGoesOnTheWayIsALostPacket) {
  LocalPair pair(with_mtu(1024));
  pair.b.fill(0, 60'000, 9);
  const auto before = contents(pair.b, {pair.b.sge(0, 60'000)});
  const Extra extra(pair.a, 100'000, nullptr);
  pair.a.post(write_of(pair, {extra.sge(60'000)}));
  bool first = true;
  pair.settle([&](const Sent& sent) {
    if (std::exchange(first, false)) {
      EXPECT_TRUE(sent.by_reference);
      EXPECT_TRUE(pair.a.table.retire(extra.key));
    }
    return true;
  });
  const auto completions = pair.a.poll();
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].vendor_err, UROCE_FAIL_SEND_MEMORY);
  EXPECT_GE(pair.sum(&Counters::drop_reference), 1u);
  EXPECT_EQ(contents(pair.b, {pair.b.sge(0, 60'000)}), before);
}

// Its program knows that the work request has ended, and may use the memory for other things.
TEST_P(ByReference, NothingIsCopiedOnceTheSenderHasEnded) {
  for (const QpState state : {QpState::kErr, QpState::kReset}) {
    for (const std::uint8_t opcode : {UROCE_WR_RDMA_WRITE, UROCE_WR_SEND, UROCE_WR_RDMA_READ}) {
      LocalPair pair(with_mtu(1024));
      const bool reads = opcode == UROCE_WR_RDMA_READ;
      End& sender = reads ? pair.b : pair.a;
      End& receiver = reads ? pair.a : pair.b;
      receiver.fill(0, 60'000, 9);
      const auto before = contents(receiver, {receiver.sge(0, 60'000)});
      pair.b.post_receive(1, {pair.b.sge(0, 60'000)});
      Work work = reads ? read_of(pair, {pair.a.sge(0, 60'000)}) : write_of(pair, {pair.a.sge(0, 60'000)});
      work.opcode = opcode;
      pair.a.post(work);
      bool first = true;
      pair.run([&](const Sent& sent) {
        if (sent.by_reference && std::exchange(first, false)) {
          EXPECT_EQ(sender.to(state, pair.now).error, 0);
        }
        return true;
      });
      EXPECT_FALSE(first);
      EXPECT_GE(pair.sum(&Counters::drop_reference), 1u);
      EXPECT_EQ(contents(receiver, {receiver.sge(0, 60'000)}), before);
    }
  }
}

// A later request makes the QP fail while its answer is on the way. On a wire the answer arrives all the same.
TEST_P(ByReference, AnAnswerArrivesThoughItsQpHasFailed) {
  LocalPair pair(with_mtu(1024));
  pair.b.fill(0, 8192, 9);
  pair.b.post_receive(1, {pair.b.sge(100'000, 8)});
  pair.a.post({.wr_id = 1,
               .opcode = UROCE_WR_RDMA_READ,
               .sges = {pair.a.sge(0, 8192)},
               .remote = End::kIova,
               .rkey = pair.b.key.value});
  bool answered = false;
  pair.run([&](const Sent& sent) {
    if (sent.by_reference && !std::exchange(answered, true)) {
      // Longer than the receive, it overtakes the answer.
      pair.a.post({.wr_id = 2, .opcode = UROCE_WR_SEND, .sges = {pair.a.sge(100'000, 64)}});
      pair.carry_from(pair.a);
      pair.carry_from(pair.b, [](const Sent&) { return false; });  // a NAK, which is lost
      EXPECT_EQ(pair.b.snapshot().attr.state, QpState::kErr);
    }
    return true;
  });
  EXPECT_TRUE(answered);
  pair.settle();
  const auto completions = pair.a.poll();
  ASSERT_EQ(completions.size(), 2u);
  EXPECT_EQ(completions[0].status, UROCE_WC_SUCCESS);
  EXPECT_EQ(completions[1].status, UROCE_WC_RETRY_EXC_ERR);
  EXPECT_EQ(contents(pair.a, {pair.a.sge(0, 8192)}), contents(pair.b, {pair.b.sge(0, 8192)}));
}

// The answer of a READ must be complete before a SEND after it invalidates the key.
TEST_P(ByReference, ASendMayInvalidateTheKeyOfTheReadBeforeIt) {
  LocalPair pair(with_mtu(1024));
  pair.b.fill(0, 60'000, 9);
  const Key fast = *pair.b.table.allocate_fast({.pd = pair.b.pd,
                                                .access = kAllAccess,
                                                .iova = End::kIova,
                                                .length = 60'000,
                                                .base = pair.b.at(0),
                                                .client_address = End::kIova,
                                                .kind = memory::Kind::kFast});
  ASSERT_EQ(pair.b.table.register_fast({.key = fast,
                                        .new_key = Key{fast.value ^ 1},
                                        .pd = pair.b.pd,
                                        .address = End::kIova,
                                        .length = 60'000,
                                        .access = kAllAccess}),
            memory::Verdict::kOk);
  pair.b.post_receive(1, {pair.b.sge(100'000, 8)});
  Work read = read_of(pair, {pair.a.sge(0, 60'000)});
  read.rkey = fast.value ^ 1;
  pair.a.post(read);
  pair.a.post({.opcode = UROCE_WR_SEND_WITH_INV, .sges = {pair.a.sge(100'000, 8)}, .imm = fast.value ^ 1});
  pair.settle();
  const auto completions = pair.a.poll();
  ASSERT_EQ(completions.size(), 2u);
  for (const uroce_cqe& cqe : completions) EXPECT_EQ(cqe.status, UROCE_WC_SUCCESS);
  EXPECT_EQ(contents(pair.a, {pair.a.sge(0, 60'000)}), contents(pair.b, {pair.b.sge(0, 60'000)}));
}

TEST_P(ByReference, MemoryThatGoesDuringTheCopyIsALostPacket) {
  for (const std::uint8_t opcode : {UROCE_WR_RDMA_WRITE, UROCE_WR_SEND, UROCE_WR_RDMA_READ}) {
    // For good, or only when the second frame that names it arrives: then the message must come through whole.
    for (const bool for_good : {true, false}) {
      LocalPair pair(with_mtu(1024));
      memory::Loss loss;
      const bool reads = opcode == UROCE_WR_RDMA_READ;
      End& owner = reads ? pair.b : pair.a;
      const Extra extra(owner, 100'000, &loss);
      owner.fill(100'000, 60'000, 4);
      pair.b.post_receive(1, {pair.b.sge(0, 20'000), pair.b.sge(30'000, 40'000)});
      Work work = reads ? read_of(pair, {pair.a.sge(0, 60'000)}) : write_of(pair, {extra.sge(60'000)});
      work.opcode = opcode;
      if (reads) work.rkey = extra.key.value;
      pair.a.post(work);
      std::size_t named = 0;
      pair.settle([&](const Sent& sent) {
        named += sent.by_reference;
        const bool now = sent.by_reference && named == 2;
        if (now || !for_good)
          loss.from = now ? reinterpret_cast<std::uintptr_t>(owner.at(100'000)) : ~std::uintptr_t{0};
        return true;
      });
      EXPECT_GE(pair.sum(&Counters::drop_reference), 1u);
      const auto completions = pair.a.poll();
      ASSERT_EQ(completions.size(), 1u);
      if (for_good) {
        EXPECT_EQ(completions[0].vendor_err, reads ? UROCE_FAIL_NO_ACKNOWLEDGE : UROCE_FAIL_SEND_MEMORY);
        EXPECT_TRUE(pair.b.poll(true).empty() || reads || opcode == UROCE_WR_SEND);
        continue;
      }
      EXPECT_EQ(completions[0].status, UROCE_WC_SUCCESS) << int{opcode};
      const std::vector<uroce_sge> landed =
          opcode == UROCE_WR_SEND ? cut(pair.b, 0, {20'000}) : cut(reads ? pair.a : pair.b, 0, {60'000});
      auto got = contents(reads ? pair.a : pair.b, landed);
      if (opcode == UROCE_WR_SEND) {
        const auto rest = contents(pair.b, {pair.b.sge(30'000, 40'000)});
        got.insert(got.end(), rest.begin(), rest.end());
      }
      EXPECT_EQ(got, contents(owner, {owner.sge(100'000, 60'000)})) << int{opcode};
    }
  }
}

// A program that may not reach memory does not reach it by naming it.
TEST_P(ByReference, ARangeThatIsNotTheSendersIsRefusedWhereItIsPosted) {
  LocalPair pair(with_mtu(1024));
  pair.a.post(write_of(pair, {{End::kIova, 8192, pair.b.key.value ^ 0x100}}));
  pair.settle();
  const auto completions = pair.a.poll();
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].status, UROCE_WC_LOC_PROT_ERR);
  EXPECT_EQ(pair.by_reference(), 0u);
}

class ByReferenceOfTwoDevices : public ::testing::Test {
 protected:
  void SetUp() override { LocalPair::apart = true; }
  void TearDown() override { LocalPair::apart = false; }
};

// What is copied belongs to the sender, also where another device has the same key for other memory.
TEST_F(ByReferenceOfTwoDevices, AKeyIsLookedUpWhereItIs) {
  LocalPair pair(with_mtu(1024));
  ASSERT_EQ(pair.a.key.value, pair.b.key.value) << "both tables begin with the same key";
  pair.a.fill(0, 8192, 3);
  pair.b.fill(0, 16384, 5);
  const auto expected = contents(pair.a, {pair.a.sge(0, 8192)});
  Work work = write_of(pair, {pair.a.sge(0, 8192)});
  work.remote = End::kIova + 8192;
  pair.a.post(work);
  pair.run();
  EXPECT_EQ(pair.by_reference(), 1u);
  EXPECT_EQ(contents(pair.b, {pair.b.sge(8192, 8192)}), expected);
}

TEST_F(ByReferenceOfTwoDevices, BothMustCarryReferences) {
  for (const bool of_sender : {false, true}) {
    LocalPair pair(with_mtu(1024));
    (of_sender ? pair.a : pair.b).transport->allow_references(false);
    pair.a.post(write_of(pair, {pair.a.sge(0, 50'000)}));
    pair.a.post(read_of(pair, {pair.a.sge(0, 50'000)}));
    pair.settle();
    EXPECT_EQ(pair.by_reference(), 0u);
    EXPECT_EQ(pair.a.poll().size(), 2u);
  }
}

// All headers are right, and the QP exists on the other device: only the sender tells the two apart.
TEST_F(ByReferenceOfTwoDevices, APacketOfAnotherQpIsRefused) {
  LocalPair pair(with_mtu(1024));
  std::vector<std::byte> buffer(8192);
  base::Frame frame{buffer.data(), 0, 8192, 0, 0, nullptr};
  pair.a.post(write_of(pair, {pair.a.sge(0, 512)}));
  TxBurst burst{{&frame, 1}, 0};
  pair.a.transport->transmit(burst, pair.now);
  ASSERT_EQ(burst.count, 1u);
  const std::uint32_t sender = frame.sender;
  wire::RxPacket rx;
  ASSERT_EQ(wire::parse(frame.bytes(), {.check_icrc = true}, rx), wire::ParseVerdict::kOk);
  const Qpn qpn = LocalDevices::qpn_of(sender);
  EXPECT_EQ(qpn.value, pair.a.qpn.value);
  for (const std::uint32_t forged : {0u, qpn.value, LocalDevices::sender(2, qpn), LocalDevices::sender(3, qpn),
                                     LocalDevices::sender(1, pair.b.qpn)}) {
    rx.sender = forged;
    pair.b.transport->receive(rx, pair.now);
  }
  EXPECT_EQ(pair.b.counters().drop_wrong_source, 5u);
  rx.sender = sender;
  pair.b.transport->receive(rx, pair.now);
  EXPECT_EQ(pair.b.counters().drop_wrong_source, 5u);
  EXPECT_EQ(pair.b.counters().rcvd_pkts, 1u);
}

INSTANTIATE_TEST_SUITE_P(Devices, ByReference, ::testing::Bool(),
                         [](const auto& named) { return named.param ? "Two" : "One"; });

}  // namespace
}  // namespace uroce::proto::test
