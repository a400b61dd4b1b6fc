// The requester: losses, NAKs, limits and malformed entries.
#include <deque>
#include <utility>

#include "tests/unit/proto/pair.h"
#include "wire/extended_headers.h"

namespace uroce::proto::test {
namespace {

using wire::Nak;
using wire::Operation;

Work write_of(Pair& pair, std::uint32_t bytes, std::uint64_t to = 0, std::uint8_t flags = UROCE_SEND_SIGNALED) {
  return {.opcode = UROCE_WR_RDMA_WRITE,
          .flags = flags,
          .sges = {pair.a.sge(0, bytes)},
          .remote = End::kIova + to,
          .rkey = pair.b.key.value};
}
Work read_of(Pair& pair, std::uint32_t bytes, std::uint64_t from = 0, std::uint64_t to = 500000) {
  return {.opcode = UROCE_WR_RDMA_READ,
          .sges = {pair.a.sge(to, bytes)},
          .remote = End::kIova + from,
          .rkey = pair.b.key.value};
}
std::size_t count(const std::vector<Packet>& packets, Operation operation) {
  std::size_t n = 0;
  for (const Packet& packet : packets) n += packet.operation() == operation;
  return n;
}

TEST(Requester, TimesOutNoEarlierThanConfigured) {
  Options options;
  options.timeout = 10;  // 4.194304 ms
  Pair pair(options);
  pair.a.post(write_of(pair, 10));
  EXPECT_EQ(pair.take(pair.a).size(), 1u);
  pair.now += 4194303;
  pair.a.transport->advance(pair.now);
  EXPECT_TRUE(pair.take(pair.a).empty());
  EXPECT_LE(pair.a.transport->next_timeout(), pair.now + 1024);
  pair.now += 1025;
  pair.a.transport->advance(pair.now);
  EXPECT_EQ(pair.take(pair.a).size(), 1u);
  EXPECT_EQ(pair.a.counters().local_ack_timeout_err, 1u);
}

TEST(Requester, TimeoutZeroWaitsForever) {
  Options options;
  options.timeout = 0;
  Pair pair(options);
  pair.a.post(write_of(pair, 10));
  EXPECT_EQ(pair.take(pair.a).size(), 1u);
  EXPECT_EQ(pair.a.transport->next_timeout(), kNever);
  pair.now += 1000 * kSecond;
  pair.a.transport->advance(pair.now);
  EXPECT_TRUE(pair.take(pair.a).empty());
}

TEST(Requester, GivesUpAfterRetryCntAndFlushesTheRest) {
  Options options;
  options.retry_cnt = 2;
  Pair pair(options);
  for (std::uint64_t i = 0; i < 3; ++i) {
    Work work = write_of(pair, 10, 0, 0);
    work.wr_id = i;
    pair.a.post(work);
  }
  pair.settle(10 * kSecond, [](const End&, const Packet&) { return true; });
  const auto sent = pair.a.poll();
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(sent[0].status, UROCE_WC_RETRY_EXC_ERR);
  EXPECT_EQ(sent[0].vendor_err, std::uint32_t{UROCE_FAIL_NO_ACKNOWLEDGE});
  EXPECT_EQ(sent[1].status, UROCE_WC_WR_FLUSH_ERR);
  EXPECT_EQ(sent[1].vendor_err, std::uint32_t{UROCE_FAIL_FLUSHED});
  EXPECT_EQ(sent[2].wr_id, 2u);
  const std::uint64_t probes = pair.a.counters().roce_adp_retrans;
  EXPECT_EQ(pair.log.size() - probes, 9u) << "three packets, first and twice again";
  QpFailure failures[4];
  ASSERT_TRUE(pair.a.transport->any_failures());
  ASSERT_EQ(pair.a.transport->take_failures(failures), 1u) << "of the request, not of those that were flushed";
  EXPECT_EQ(failures[0].cause, UROCE_FAIL_NO_ACKNOWLEDGE);
  EXPECT_EQ(failures[0].qpn, pair.a.qpn);
  EXPECT_EQ(failures[0].peer_qpn, pair.b.qpn);
  EXPECT_EQ(failures[0].peer, address_of(2));
  EXPECT_EQ(failures[0].owner, 42u);
  EXPECT_FALSE(pair.a.transport->any_failures());
  EXPECT_EQ(pair.a.counters().retry_exceeded_err, 1u);
}

TEST(Requester, RnrRetriesRunOut) {
  Options options;
  options.rnr_retry = 2;
  Pair pair(options);
  pair.a.post({.sges = {pair.a.sge(0, 1)}});
  pair.settle(kSecond);
  ASSERT_EQ(pair.a.poll()[0].vendor_err, std::uint32_t{UROCE_FAIL_NO_RECEIVE});
  EXPECT_EQ(pair.b.counters().rnr_nak_sent, 3u);
  EXPECT_EQ(pair.a.counters().rnr_nak_retry_err, 1u);
}

TEST(Requester, RnrRetrySevenIsForever) {
  Pair pair;
  pair.a.post({.sges = {pair.a.sge(0, 1)}});
  pair.settle(kSecond);
  EXPECT_TRUE(pair.a.poll().empty());
  EXPECT_GT(pair.b.counters().rnr_nak_sent, 1000u);
}

TEST(Requester, GoesBackToWhatTheSequenceNakNames) {
  Pair pair;
  for (int i = 0; i < 6; ++i) pair.a.post(write_of(pair, 10, 64 * i));
  bool lost = false;
  pair.run([&](const End& from, const Packet& packet) {
    return &from == &pair.a && packet.psn() == 102 && !std::exchange(lost, true);
  });
  EXPECT_EQ(pair.a.poll().size(), 6u);
  EXPECT_EQ(pair.a.counters().packet_seq_err, 1u);
  EXPECT_EQ(pair.a.counters().retransmitted_pkts, 4u);
  EXPECT_EQ(pair.a.counters().local_ack_timeout_err, 0u);
}

TEST(Requester, ReadResumesWhereTheResponseWasLost) {
  Pair pair;
  pair.b.fill(0, 5000, 9);
  pair.a.post(read_of(pair, 5000));
  bool lost = false;
  pair.run([&](const End& from, const Packet& packet) {
    return &from == &pair.b && packet.psn() == 107 && !std::exchange(lost, true);
  });
  EXPECT_EQ(pair.a.poll().size(), 1u);
  EXPECT_EQ(std::memcmp(pair.a.at(500000), pair.b.at(0), 5000), 0);
  EXPECT_EQ(pair.a.counters().implied_nak_seq_err, 1u);
  std::vector<std::uint32_t> requests;
  for (const Packet& packet : pair.log) {
    if (packet.operation() == Operation::kReadRequest) requests.push_back(packet.psn());
  }
  EXPECT_EQ(requests, (std::vector<std::uint32_t>{100, 107}));
}

TEST(Requester, LostAtomicAnswerIsImpliedByALaterAcknowledge) {
  Pair pair;
  pair.a.post({.opcode = UROCE_WR_ATOMIC_FETCH_AND_ADD,
               .sges = {pair.a.sge(0, 8)},
               .remote = End::kIova,
               .rkey = pair.b.key.value,
               .compare_add = 3});
  pair.a.post(write_of(pair, 10, 64));
  bool lost = false;
  pair.run([&](const End&, const Packet& packet) {
    return packet.operation() == Operation::kAtomicAcknowledge && !std::exchange(lost, true);
  });
  EXPECT_EQ(pair.a.poll().size(), 2u);
  std::uint64_t value = 0;
  std::memcpy(&value, pair.b.at(0), 8);
  EXPECT_EQ(value, 3u) << "executed once";
  EXPECT_EQ(pair.a.counters().implied_nak_seq_err, 1u);
}

TEST(Requester, KeepsNoMoreReadsOutstandingThanAllowed) {
  Options options;
  options.max_rd_atomic = 2;
  Pair pair(options);
  for (int i = 0; i < 5; ++i) pair.a.post(read_of(pair, 10));
  EXPECT_EQ(count(pair.take(pair.a), Operation::kReadRequest), 2u);
}

TEST(Requester, LongReadIsAskedForInPieces) {
  Options options;
  options.max_rd_atomic = 2;
  Pair pair(options);
  pair.a.post(read_of(pair, 256 * 100 + 5));
  auto requests = pair.take(pair.a);
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].reth().length, 32u * 256);
  EXPECT_EQ(requests[1].psn(), 132u);
  EXPECT_EQ(requests[1].reth().address, End::kIova + 32 * 256);
  for (const Packet& packet : requests) pair.deliver(pair.b, packet);
  pair.run();
  EXPECT_EQ(pair.a.poll().size(), 1u);
}

TEST(Requester, ReadResponsesUnderWayStayBelowTheReceiveRing) {
  Options options;
  options.receive_ring_bytes = 3 * 32 * (256 + 64) * 16 / 15;  // a sixteenth is for smaller READs
  options.max_rd_atomic = options.max_dest_rd_atomic = 16;
  Pair pair(options);
  for (int i = 0; i < 10; ++i) pair.a.post(read_of(pair, 32 * 256));
  EXPECT_EQ(pair.take(pair.a).size(), 3u);
}

TEST(Requester, FenceWaitsForReads) {
  Pair pair;
  pair.a.post(read_of(pair, 10));
  pair.a.post(write_of(pair, 10, 0, UROCE_SEND_FENCE | UROCE_SEND_SIGNALED));
  auto packets = pair.take(pair.a);
  ASSERT_EQ(packets.size(), 1u);
  pair.deliver(pair.b, packets[0]);
  for (const Packet& packet : pair.take(pair.b)) pair.deliver(pair.a, packet);
  packets = pair.take(pair.a);
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].operation(), Operation::kWriteOnly);
}

// As a fence makes it wait, but not for READs after the one that it changes; and only if it changes something.
TEST(Requester, WhatChangesWhatAReadReadsWaitsForItsWholeAnswer) {
  struct Case {
    std::uint64_t at;
    std::uint32_t bytes;
    std::size_t answers;  ///< packets of READ responses before the WRITE leaves; each READ has two
  };
  constexpr Case kCases[] = {{92, 8, 0},  {93, 8, 2},   {100, 8, 2},  {399, 8, 2}, {400, 8, 0}, {792, 8, 0},
                             {793, 8, 4}, {1099, 8, 4}, {1100, 8, 0}, {200, 0, 0}, {900, 0, 0}, {0, 2000, 4}};
  for (const Case& each : kCases) {
    SCOPED_TRACE(each.at);
    Pair pair({.max_rd_atomic = 4, .max_dest_rd_atomic = 4});
    pair.a.post(read_of(pair, 300, 100));
    pair.a.post(read_of(pair, 300, 800));
    pair.a.post(write_of(pair, each.bytes, each.at));
    const auto left = [&pair] {
      bool write = false;
      for (const Packet& packet : pair.take(pair.a)) {
        write |= packet.rx.info->has(wire::kWrite);
        pair.deliver(pair.b, packet);
      }
      return write;
    };
    std::size_t answers = 0;
    bool sent = left();
    for (const Packet& packet : pair.take(pair.b)) {
      EXPECT_EQ(sent, answers >= each.answers) << answers;
      if (!packet.rx.info->has(wire::kRead)) continue;
      pair.deliver(pair.a, packet);
      ++answers;
      sent |= left();
    }
    EXPECT_EQ(answers, 4u);
    EXPECT_TRUE(sent);
  }
}

// The search for what is read is short, whatever a client posts.
TEST(Requester, AWriteAfterManyRequestsWaitsWithoutASearch) {
  for (const std::uint32_t between : {100, 200}) {
    Pair pair({.entries = 512, .max_rd_atomic = 4, .max_dest_rd_atomic = 4});
    pair.a.post(read_of(pair, 8, 0));
    for (std::uint32_t i = 0; i < between; ++i) pair.a.post(write_of(pair, 0));
    pair.a.post(read_of(pair, 8, 800));
    pair.a.post(write_of(pair, 8, 400));
    const auto packets = pair.take(pair.a);
    EXPECT_EQ(packets.size(), between + (between == 100 ? 3 : 2));
  }
}

TEST(Requester, WindowHalvesOnLossAndGrowsWithAcknowledges) {
  Pair pair;
  const std::uint32_t start = pair.a.snapshot().window_bytes;
  pair.a.post(write_of(pair, 300000));
  pair.run();
  const std::uint32_t grown = pair.a.snapshot().window_bytes;
  EXPECT_GT(grown, start);
  pair.a.post(write_of(pair, 1000));
  bool lost = false;
  pair.run([&](const End&, const Packet& packet) {
    return packet.operation() == Operation::kWriteMiddle && !std::exchange(lost, true);
  });
  EXPECT_LT(pair.a.snapshot().window_bytes, grown);
  EXPECT_GE(pair.a.snapshot().window_bytes, grown / 2);
}

// What a request brings cannot be stopped any more. Requests get longer while shorter ones are under way.
TEST(Requester, RequestsOfAReadArePartsOfTheWindow) {
  for (const std::uint8_t requests : {1, 2, 4, 16}) {
    Pair pair({.max_rd_atomic = requests, .max_dest_rd_atomic = 16, .start_window = 4096});
    pair.a.post(read_of(pair, 900000, 0, 0));
    std::uint32_t longest = 0, in_flight = 0;
    std::deque<Packet> answers;
    const auto cost_of_answer = [](std::uint32_t bytes) { return bytes + (bytes + 255) / 256 * kPacketCost; };
    const auto exchange = [&] {
      const std::uint32_t window = pair.a.snapshot().window_bytes;
      for (const Packet& packet : pair.take(pair.a)) {
        const std::uint32_t bytes = packet.reth().length;
        EXPECT_LE(cost_of_answer(bytes), window / std::min<std::uint32_t>(requests, 4));
        in_flight += cost_of_answer(bytes);
        longest = std::max(longest, bytes);
        pair.deliver(pair.b, packet);
      }
      EXPECT_LE(in_flight, window);
      for (Packet& packet : pair.take(pair.b)) answers.push_back(std::move(packet));
    };
    for (exchange(); !answers.empty(); exchange()) {
      pair.deliver(pair.a, answers.front());
      in_flight -= cost_of_answer(answers.front().rx.payload_bytes);
      answers.pop_front();
    }
    const auto completions = pair.a.poll();
    ASSERT_EQ(completions.size(), 1u);
    EXPECT_EQ(completions[0].status, UROCE_WC_SUCCESS);
    EXPECT_EQ(longest, 32u * 256) << "once the window is large";
  }
}

// Where requests end is the same when they are sent again, though the window has become smaller since: answers to
// the first and to the second time fit.
TEST(Requester, RequestsOfAReadEndWhereTheyEndedBefore) {
  for (std::uint32_t lost = 0; lost < 120; ++lost) {
    Pair pair({.max_rd_atomic = 16, .max_dest_rd_atomic = 16});
    pair.a.post(write_of(pair, 300000));
    pair.run();
    pair.a.poll();
    pair.a.post(read_of(pair, 128 * 256));
    const auto sent = pair.take(pair.a);
    for (const Packet& packet : sent) pair.deliver(pair.b, packet);
    const auto first = pair.take(pair.b);
    ASSERT_EQ(first.size(), 128u);
    for (std::uint32_t i = 0; i < first.size(); ++i) {
      if (i != lost) pair.deliver(pair.a, first[i]);
    }
    const auto again = pair.take(pair.a);
    ASSERT_FALSE(again.empty());
    EXPECT_EQ(again[0].psn(), first[lost].psn());
    for (std::uint32_t i = lost; i < first.size(); ++i) pair.deliver(pair.a, first[i]);
    const auto completions = pair.a.poll();
    ASSERT_EQ(completions.size(), 1u) << lost;
    EXPECT_EQ(completions[0].status, UROCE_WC_SUCCESS) << lost;
    for (const Packet& packet : again) pair.deliver(pair.b, packet);
    pair.run();
  }
}

TEST(Requester, AsksForAnAcknowledgeWithinAQuarterOfTheWindow) {
  Options options;
  options.quantum = 10000;
  Pair pair(options);
  pair.a.post(write_of(pair, 900000));
  std::uint32_t since = 0, most = 0;
  for (const Packet& packet : pair.take(pair.a)) {
    since = packet.rx.bth.ack_req ? 0 : since + packet.rx.payload_bytes;
    most = std::max(most, since);
  }
  EXPECT_LE(most, pair.a.snapshot().window_bytes / 4);
}

TEST(Requester, LocalInvalidateWaitsForWhatIsBeforeItAndIsNotRepeated) {
  Pair pair;
  const Key fast = *pair.a.table.insert({.pd = pair.a.pd,
                                         .access = kAllAccess,
                                         .iova = 0,
                                         .length = 64,
                                         .base = pair.a.at(0),
                                         .kind = memory::Kind::kFast});
  Work uses = write_of(pair, 8);
  uses.sges = {{0, 8, fast.value}};
  pair.a.post(uses);
  pair.a.post({.opcode = UROCE_WR_LOCAL_INV, .imm = fast.value});
  pair.a.post(write_of(pair, 8));
  int losses = 2;
  pair.settle(kSecond, [&](const End& from, const Packet&) { return &from == &pair.a && losses-- > 0; });
  const auto sent = pair.a.poll();
  ASSERT_EQ(sent.size(), 3u);
  for (const uroce_cqe& cqe : sent) EXPECT_EQ(cqe.status, UROCE_WC_SUCCESS);
  EXPECT_EQ(sent[1].opcode, UROCE_WC_LOCAL_INV);
  memory::Span span;
  EXPECT_NE(pair.a.table.resolve(fast, pair.a.pd, 0, 8, 0, span), memory::Verdict::kOk);
}

struct BadEntry {
  const char* name;
  std::function<void(uroce_sq_entry&, std::vector<uroce_sge>&)> spoil;
  std::uint8_t failure;
  std::uint64_t Counters::*counter;
};
class BadEntries : public testing::TestWithParam<BadEntry> {};

TEST_P(BadEntries, FailAloneAfterGoodOnesBeforeThem) {
  Pair pair;
  pair.a.post(write_of(pair, 8, 0, 0));
  uroce_sq_entry entry{};
  entry.wr_id = 77;
  entry.opcode = UROCE_WR_RDMA_WRITE;
  entry.num_sge = 1;
  entry.remote_addr = End::kIova;
  entry.rkey = pair.b.key.value;
  std::vector<uroce_sge> sges{pair.a.sge(0, 8)};
  GetParam().spoil(entry, sges);
  pair.a.post_raw(entry, sges);
  pair.run();
  const auto sent = pair.a.poll();
  ASSERT_EQ(sent.size(), 1u) << "the unsignaled one before it succeeded";
  EXPECT_EQ(sent[0].wr_id, 77u);
  EXPECT_EQ(sent[0].vendor_err, GetParam().failure);
  EXPECT_EQ(sent[0].status, GetParam().failure >> 4);
  EXPECT_EQ(pair.a.snapshot().state, QpState::kErr);
  EXPECT_EQ(pair.a.counters().*GetParam().counter, 1u);
  EXPECT_EQ(pair.b.snapshot().state, QpState::kRts);
}

INSTANTIATE_TEST_SUITE_P(Each, BadEntries,
                         testing::Values(BadEntry{"opcode", [](auto& e, auto&) { e.opcode = 200; },
                                                  UROCE_FAIL_OPCODE, &Counters::bad_wqe_opcode},
                                         BadEntry{"bind", [](auto& e, auto&) { e.opcode = UROCE_WR_BIND_MW; },
                                                  UROCE_FAIL_KEY_CHANGE, &Counters::bad_wqe_bind},
                                         BadEntry{"register", [](auto& e, auto&) { e.opcode = UROCE_WR_REG_MR; },
                                                  UROCE_FAIL_KEY_CHANGE, &Counters::bad_wqe_bind},
                                         BadEntry{"atomic_write_length",
                                                  [](auto& e, auto& sges) {
                                                    e.opcode = UROCE_WR_ATOMIC_WRITE;
                                                    sges[0].length = 9;
                                                  },
                                                  UROCE_FAIL_OPERAND_LENGTH, &Counters::bad_wqe_length},
                                         BadEntry{"sge_count", [](auto& e, auto&) { e.num_sge = 65535; },
                                                  UROCE_FAIL_SEND_LIST, &Counters::bad_wqe_sge_count},
                                         BadEntry{"inline_length",
                                                  [](auto& e, auto&) {
                                                    e.flags = UROCE_SEND_INLINE;
                                                    e.inline_length = 0xffffffff;
                                                  },
                                                  UROCE_FAIL_INLINE_LENGTH, &Counters::bad_wqe_inline},
                                         BadEntry{"inline_read",
                                                  [](auto& e, auto&) {
                                                    e.opcode = UROCE_WR_RDMA_READ;
                                                    e.flags = UROCE_SEND_INLINE;
                                                  },
                                                  UROCE_FAIL_INLINE_OPCODE, &Counters::bad_wqe_flags},
                                         BadEntry{"length",
                                                  [](auto& e, auto& sges) {
                                                    sges = {{0, 0x80000000u, 0}, {0, 1, 0}};
                                                    e.num_sge = 2;
                                                  },
                                                  UROCE_FAIL_MESSAGE_LENGTH, &Counters::bad_wqe_length},
                                         BadEntry{"lkey", [](auto&, auto& sges) { sges[0].lkey ^= 0x100; },
                                                  UROCE_FAIL_SEND_MEMORY, &Counters::bad_wqe_key},
                                         BadEntry{"bounds", [](auto&, auto& sges) { sges[0].addr += End::kMemory; },
                                                  UROCE_FAIL_SEND_MEMORY, &Counters::bad_wqe_key},
                                         BadEntry{"invalidate",
                                                  [](auto& e, auto&) { e.opcode = UROCE_WR_LOCAL_INV; },
                                                  UROCE_FAIL_KEY_CHANGE, &Counters::bad_wqe_bind},
                                         BadEntry{"atomic_length",
                                                  [](auto& e, auto& sges) {
                                                    e.opcode = UROCE_WR_ATOMIC_FETCH_AND_ADD;
                                                    sges[0].length = 4;
                                                  },
                                                  UROCE_FAIL_OPERAND_LENGTH, &Counters::bad_wqe_length},
                                         BadEntry{"read_lkey",
                                                  [](auto& e, auto& sges) {
                                                    e.opcode = UROCE_WR_RDMA_READ;
                                                    sges[0].lkey ^= 0x100;
                                                  },
                                                  UROCE_FAIL_RESULT_MEMORY, &Counters::bad_wqe_key},
                                         BadEntry{"atomic_bounds",
                                                  [](auto& e, auto& sges) {
                                                    e.opcode = UROCE_WR_ATOMIC_FETCH_AND_ADD;
                                                    sges[0].addr += End::kMemory;
                                                  },
                                                  UROCE_FAIL_RESULT_MEMORY, &Counters::bad_wqe_key}),
                         [](const auto& param) { return param.param.name; });

TEST(Requester, ResponsesOutOfTheBlueAreDropped) {
  Pair pair;
  pair.a.post(write_of(pair, 8));
  for (const Packet& packet : pair.take(pair.a)) pair.deliver(pair.b, packet);
  const auto answers = pair.take(pair.b);
  wire::RxPacket future = answers[0].rx;
  future.bth.psn = Psn(101);
  pair.a.transport->receive(future, pair.now);
  EXPECT_TRUE(pair.a.poll().empty());
  pair.deliver(pair.a, answers[0]);
  pair.deliver(pair.a, answers[0]);
  EXPECT_EQ(pair.a.poll().size(), 1u);
  EXPECT_EQ(pair.a.counters().drop_unexpected, 2u);
}

TEST(Requester, ReadResponseOfTheWrongLengthIsABadResponse) {
  Pair pair;
  pair.a.post(read_of(pair, 600));
  for (const Packet& packet : pair.take(pair.a)) pair.deliver(pair.b, packet);
  const auto answers = pair.take(pair.b);
  wire::RxPacket shorter = answers[0].rx;
  shorter.payload_bytes -= 4;
  pair.a.transport->receive(shorter, pair.now);
  const uroce_cqe failed = pair.a.poll()[0];
  EXPECT_EQ(failed.status, UROCE_WC_BAD_RESP_ERR);
  EXPECT_EQ(failed.vendor_err, std::uint32_t{UROCE_FAIL_RESPONSE_LENGTH});
}

TEST(Requester, ResultMemoryThatIsWithdrawnWhileTheRequestIsUnderWayFails) {
  Pair pair;
  pair.a.post(read_of(pair, 600));
  for (const Packet& packet : pair.take(pair.a)) pair.deliver(pair.b, packet);
  const auto answers = pair.take(pair.b);
  ASSERT_TRUE(pair.a.table.retire(pair.a.key));
  for (const Packet& packet : answers) pair.deliver(pair.a, packet);
  EXPECT_EQ(pair.a.poll().at(0).vendor_err, std::uint32_t{UROCE_FAIL_RESPONSE_MEMORY});
}

TEST(Requester, ALossThatThePeerReportsIsToldFromSilence) {
  Options options;
  options.retry_cnt = 0;
  Pair pair(options);
  pair.a.post(write_of(pair, 8));
  pair.a.post(write_of(pair, 8));
  pair.settle(10 * kMillisecond,
              [&](const End& from, const Packet& packet) { return &from == &pair.a && packet.psn() == 100; });
  const auto sent = pair.a.poll();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].status, UROCE_WC_RETRY_EXC_ERR);
  EXPECT_EQ(sent[0].vendor_err, std::uint32_t{UROCE_FAIL_LOSS});
}

}  // namespace
}  // namespace uroce::proto::test
