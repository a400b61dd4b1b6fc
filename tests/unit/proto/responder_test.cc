// The responder: acknowledges, NAKs, duplicates, and the end of a QP.
#include "proto/rc/responder.h"
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
Work add_of(Pair& pair, std::uint64_t at, std::uint64_t value) {
  return {.opcode = UROCE_WR_ATOMIC_FETCH_AND_ADD,
          .sges = {pair.a.sge(0, 8)},
          .remote = End::kIova + at,
          .rkey = pair.b.key.value,
          .compare_add = value};
}
std::uint64_t word(End& end, std::uint64_t offset) {
  std::uint64_t value = 0;
  std::memcpy(&value, end.at(offset), 8);
  return value;
}

TEST(Responder, ComparesAReadOfLongAgoWithADuplicate) {
  Resource read{};
  read.psn_count = 1;
  Qp qp{};
  qp.answers.ring = &read;
  qp.answers.count = qp.answers.used = 1;
  for (const std::uint32_t age : {1u, 100u, 0x7fffffu, 0x800001u, 0xffff00u}) {
    qp.responder.epsn = Psn(read.first_psn) + age;
    EXPECT_TRUE(responder::resource_after(qp, Psn(read.first_psn) - 1)) << age;
    EXPECT_FALSE(responder::resource_after(qp, Psn(read.first_psn) + age - 1)) << age;
  }
}

TEST(Transport, TimeMayStandAtTheEnd) {
  Pair pair;
  pair.a.transport->advance(kNever);
  EXPECT_EQ(pair.a.transport->next_timeout(), kNever);
}

TEST(Responder, AcknowledgesARoundOnceForItsNewestPsn) {
  Pair pair;
  for (int i = 0; i < 5; ++i) pair.a.post(write_of(pair, 10));
  for (const Packet& packet : pair.take(pair.a)) pair.deliver(pair.b, packet);
  const auto answers = pair.take(pair.b);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].psn(), 104u);
  EXPECT_EQ(answers[0].aeth().msn.value(), 5u);
}

TEST(Responder, SaysNothingWithoutAckReq) {
  Pair pair;
  pair.a.post(write_of(pair, 600));
  const auto packets = pair.take(pair.a);
  ASSERT_EQ(packets.size(), 3u);
  EXPECT_FALSE(packets[0].rx.bth.ack_req);
  pair.deliver(pair.b, packets[0]);
  EXPECT_TRUE(pair.take(pair.b).empty());
}

TEST(Responder, SequenceNakIsGivenOnceUntilBackInSequence) {
  Pair pair;
  for (int i = 0; i < 6; ++i) pair.a.post(write_of(pair, 10, 64 * i));
  const auto packets = pair.take(pair.a);
  pair.deliver(pair.b, packets[0]);
  pair.deliver(pair.b, packets[2]);
  auto answers = pair.take(pair.b);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_TRUE(answers[0].is_nak(Nak::kSequence));
  EXPECT_EQ(answers[0].psn(), 101u);
  pair.deliver(pair.b, packets[3]);
  EXPECT_TRUE(pair.take(pair.b).empty());
  pair.deliver(pair.b, packets[1]);
  pair.deliver(pair.b, packets[5]);
  answers = pair.take(pair.b);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_TRUE(answers[0].is_nak(Nak::kSequence));
  EXPECT_EQ(answers[0].psn(), 102u);
}

TEST(Responder, DuplicateSendIsAcknowledgedAndNotExecuted) {
  Pair pair;
  pair.b.post_receive(1, {pair.b.sge(0, 10)});
  pair.b.post_receive(2, {pair.b.sge(100, 10)});
  pair.a.post({.sges = {pair.a.sge(0, 10)}});
  const auto packets = pair.take(pair.a);
  pair.deliver(pair.b, packets[0]);
  EXPECT_EQ(pair.take(pair.b).size(), 1u);
  pair.deliver(pair.b, packets[0]);
  const auto answers = pair.take(pair.b);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].psn(), 100u);
  EXPECT_EQ(answers[0].aeth().syndrome, wire::kAckUnlimited);
  EXPECT_EQ(pair.b.poll(true).size(), 1u);
  EXPECT_EQ(pair.b.counters().duplicate_request, 1u);
}

TEST(Responder, DuplicateWriteLeavesMemoryAlone) {
  Pair pair;
  pair.a.fill(0, 10, 1);
  pair.a.post(write_of(pair, 10));
  const auto packets = pair.take(pair.a);
  pair.deliver(pair.b, packets[0]);
  pair.b.fill(0, 10, 77);
  const std::vector<std::byte> later(pair.b.at(0), pair.b.at(10));
  pair.deliver(pair.b, packets[0]);
  EXPECT_EQ(std::memcmp(pair.b.at(0), later.data(), 10), 0);
}

TEST(Responder, DuplicateReadIsAnsweredAgainWithWhatIsThereNow) {
  Pair pair;
  pair.a.post(read_of(pair, 600));
  const auto request = pair.take(pair.a);
  ASSERT_EQ(request.size(), 1u);
  pair.deliver(pair.b, request[0]);
  EXPECT_EQ(pair.take(pair.b).size(), 3u);
  pair.deliver(pair.b, request[0]);
  const auto again = pair.take(pair.b);
  ASSERT_EQ(again.size(), 3u);
  EXPECT_EQ(again[0].operation(), Operation::kReadResponseFirst);
  EXPECT_EQ(again[2].operation(), Operation::kReadResponseLast);
  EXPECT_EQ(again[2].psn(), 102u);
}

TEST(Responder, DuplicateAtomicIsAnsweredFromTheSavedResult) {
  Pair pair;
  pair.a.post(add_of(pair, 0, 5));
  const auto request = pair.take(pair.a);
  pair.deliver(pair.b, request[0]);
  (void)pair.take(pair.b);  // lost
  EXPECT_EQ(word(pair.b, 0), 5u);
  pair.deliver(pair.b, request[0]);
  const auto again = pair.take(pair.b);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].operation(), Operation::kAtomicAcknowledge);
  EXPECT_EQ(wire::AtomicAckEth::parse(again[0].rx.bth_start + again[0].rx.info->atomic_ack_eth).original, 0u);
  EXPECT_EQ(word(pair.b, 0), 5u);
}

TEST(Responder, ForgottenDuplicateAtomicIsDropped) {
  Options options;
  options.max_rd_atomic = options.max_dest_rd_atomic = 1;
  Pair pair(options);
  pair.a.post(add_of(pair, 0, 1));
  const auto first = pair.take(pair.a);
  pair.deliver(pair.b, first[0]);
  for (const Packet& answer : pair.take(pair.b)) pair.deliver(pair.a, answer);
  pair.a.post(add_of(pair, 0, 1));
  pair.run();
  pair.deliver(pair.b, first[0]);
  EXPECT_TRUE(pair.take(pair.b).empty());
  EXPECT_EQ(word(pair.b, 0), 2u);
  EXPECT_EQ(pair.b.counters().drop_unexpected, 1u);
}

TEST(Responder, AcknowledgeNeverPassesAReadResponse) {
  Options options;
  options.quantum = 2;
  Pair pair(options);
  pair.a.post(read_of(pair, 2000));
  pair.a.post(write_of(pair, 10, 4000));
  for (const Packet& packet : pair.take(pair.a)) pair.deliver(pair.b, packet);
  const auto answers = pair.take(pair.b);
  ASSERT_EQ(answers.size(), 9u);
  EXPECT_EQ(answers[7].operation(), Operation::kReadResponseLast);
  EXPECT_EQ(answers[8].operation(), Operation::kAcknowledge);
}

TEST(Responder, NoReceiveGivesRnrNakAndTheRetryDelivers) {
  Pair pair;
  pair.a.post({.sges = {pair.a.sge(0, 10)}});
  pair.run();
  EXPECT_EQ(pair.b.counters().rnr_nak_sent, 1u);
  EXPECT_EQ(pair.a.counters().rnr_nak_rcvd, 1u);
  EXPECT_TRUE(pair.a.poll().empty());
  pair.b.post_receive(3, {pair.b.sge(0, 10)});
  pair.pass(639 * kMicrosecond);
  EXPECT_TRUE(pair.a.poll().empty()) << "code 12 waits 640 us";
  pair.pass(3 * kMicrosecond);
  EXPECT_EQ(pair.a.poll().size(), 1u);
  EXPECT_EQ(pair.b.poll(true).size(), 1u);
}

TEST(Responder, WriteWithImmediateIsNotExecutedWithoutReceive) {
  Pair pair;
  pair.a.fill(0, 10, 5);
  Work work = write_of(pair, 10);
  work.opcode = UROCE_WR_RDMA_WRITE_WITH_IMM;
  pair.a.post(work);
  pair.run();
  EXPECT_EQ(pair.b.counters().rnr_nak_sent, 1u);
  EXPECT_EQ(*pair.b.at(0), std::byte{0});
}

struct Refusal {
  const char* name;
  std::function<Work(Pair&)> work;
  std::uint8_t failure;
  AsyncEvent event;
  std::optional<std::uint8_t> failure_of_receive;
};

class Refusals : public testing::TestWithParam<Refusal> {};

TEST_P(Refusals, FailBothEndsWithTheirStatus) {
  const Refusal& refusal = GetParam();
  Pair pair;
  pair.b.post_receive(9, {pair.b.sge(0, 100)});
  pair.b.post_receive(10, {pair.b.sge(0, 100)});
  pair.a.post(read_of(pair, 300));
  pair.a.post(refusal.work(pair));
  pair.a.post(write_of(pair, 1));
  pair.run();
  const auto sent = pair.a.poll();
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(sent[0].status, UROCE_WC_SUCCESS);
  EXPECT_EQ(sent[1].vendor_err, refusal.failure);
  EXPECT_EQ(sent[1].status, refusal.failure >> 4);
  EXPECT_EQ(sent[2].status, UROCE_WC_WR_FLUSH_ERR);
  EXPECT_EQ(pair.a.snapshot().state, QpState::kErr);
  EXPECT_EQ(pair.b.snapshot().state, QpState::kErr);
  const auto events = pair.b.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].type, refusal.event);
  EXPECT_EQ(events[0].object, 0x22u);
  EXPECT_EQ(events[0].owner, 42u);
  const auto received = pair.b.poll(true);
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[0].wr_id, 9u);
  EXPECT_EQ(received[0].vendor_err, refusal.failure_of_receive.value_or(UROCE_FAIL_FLUSHED));
  EXPECT_EQ(received[0].status, received[0].vendor_err >> 4);
  EXPECT_EQ(received[1].wr_id, 10u);
  EXPECT_EQ(received[1].status, UROCE_WC_WR_FLUSH_ERR);
}

INSTANTIATE_TEST_SUITE_P(
    Each, Refusals,
    testing::Values(Refusal{"write_bad_rkey",
                            [](Pair& pair) {
                              Work work = write_of(pair, 10);
                              work.rkey ^= 0x100;
                              return work;
                            },
                            UROCE_FAIL_NAK_ACCESS,
                            AsyncEvent::kQpAccessError,
                            {}},
                    Refusal{"write_past_the_end",
                            [](Pair& pair) { return write_of(pair, 10, End::kMemory - 9); },
                            UROCE_FAIL_NAK_ACCESS,
                            AsyncEvent::kQpAccessError,
                            {}},
                    Refusal{"write_address_wraps",
                            [](Pair& pair) {
                              Work work = write_of(pair, 300);
                              work.remote = ~std::uint64_t{0} - 100;
                              return work;
                            },
                            UROCE_FAIL_NAK_ACCESS,
                            AsyncEvent::kQpAccessError,
                            {}},
                    Refusal{"read_bad_rkey",
                            [](Pair& pair) {
                              Work work = read_of(pair, 10);
                              work.rkey ^= 0x100;
                              return work;
                            },
                            UROCE_FAIL_NAK_ACCESS,
                            AsyncEvent::kQpAccessError,
                            {}},
                    Refusal{"atomic_misaligned",
                            [](Pair& pair) { return add_of(pair, 4, 1); },
                            UROCE_FAIL_NAK_REQUEST,
                            AsyncEvent::kQpRequestError,
                            {}},
                    Refusal{"send_too_long", [](Pair& pair) { return Work{.sges = {pair.a.sge(0, 101)}}; },
                            UROCE_FAIL_NAK_REQUEST, AsyncEvent::kQpRequestError, UROCE_FAIL_RECEIVE_LENGTH}),
    [](const auto& param) { return param.param.name; });

TEST(Responder, AnInvalidationOfABadKeyEndsTheQpWithoutANak) {
  Pair pair(Options{.timeout = 10, .retry_cnt = 1});
  pair.b.post_receive(9, {pair.b.sge(0, 100)});
  pair.b.post_receive(10, {pair.b.sge(0, 100)});
  pair.a.post(read_of(pair, 300));
  pair.a.post(write_of(pair, 1));
  pair.a.post({.opcode = UROCE_WR_SEND_WITH_INV, .sges = {pair.a.sge(0, 8)}, .imm = 0x1234});
  pair.settle(20 * kMillisecond);
  const auto sent = pair.a.poll();
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(sent[0].status, UROCE_WC_SUCCESS);
  EXPECT_EQ(sent[2].status, sent[1].status == UROCE_WC_SUCCESS ? UROCE_WC_RETRY_EXC_ERR : UROCE_WC_WR_FLUSH_ERR);
  EXPECT_EQ(pair.b.snapshot().state, QpState::kErr);
  EXPECT_TRUE(pair.b.events().empty());
  const auto received = pair.b.poll(true);
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[0].vendor_err, std::uint32_t{UROCE_FAIL_INVALIDATED_KEY});
  EXPECT_EQ(received[1].status, UROCE_WC_WR_FLUSH_ERR);
}

TEST(Responder, BadReceiveKeyIsARemoteOperationalError) {
  Pair pair;
  uroce_sge bad = pair.b.sge(0, 100);
  bad.lkey ^= 0x100;
  pair.b.post_receive(1, {bad});
  pair.a.post({.sges = {pair.a.sge(0, 10)}});
  pair.run();
  ASSERT_EQ(pair.a.poll()[0].vendor_err, std::uint32_t{UROCE_FAIL_NAK_OPERATION});
  ASSERT_EQ(pair.b.poll(true)[0].vendor_err, std::uint32_t{UROCE_FAIL_RECEIVE_MEMORY});
  EXPECT_EQ(pair.b.counters().bad_wqe_key, 1u);
}

TEST(Responder, ReceiveWithTooManyElementsFailsAndIsCounted) {
  Pair pair;
  pair.b.post_receive(1, std::vector<uroce_sge>(200, pair.b.sge(0, 1)));
  pair.a.post({.sges = {pair.a.sge(0, 10)}});
  pair.run();
  ASSERT_EQ(pair.a.poll()[0].vendor_err, std::uint32_t{UROCE_FAIL_NAK_OPERATION});
  ASSERT_EQ(pair.b.poll(true)[0].vendor_err, std::uint32_t{UROCE_FAIL_RECEIVE_LIST});
  EXPECT_EQ(pair.b.counters().bad_wqe_sge_count, 1u);
}

TEST(Responder, OperationsTheQpDoesNotAllowAreInvalid) {
  for (const std::uint8_t opcode : {UROCE_WR_RDMA_WRITE, UROCE_WR_RDMA_READ, UROCE_WR_ATOMIC_FETCH_AND_ADD}) {
    Options closed;
    closed.access = memory::kLocalWrite;
    Pair pair(Options{}, closed);
    Work work = write_of(pair, 8);
    work.opcode = opcode;
    pair.a.post(work);
    pair.run();
    ASSERT_EQ(pair.a.poll()[0].status, UROCE_WC_REM_INV_REQ_ERR) << int{opcode};
  }
}

TEST(Responder, MoreReadsThanAllowedAreInvalid) {
  Options many, few;
  many.max_rd_atomic = 4;
  few.max_dest_rd_atomic = 2;
  Pair pair(many, few);
  for (int i = 0; i < 4; ++i) pair.a.post(read_of(pair, 10));
  for (const Packet& packet : pair.take(pair.a)) pair.deliver(pair.b, packet);
  const auto answers = pair.take(pair.b);
  ASSERT_EQ(answers.size(), 3u) << "both good READs are answered before the NAK";
  EXPECT_TRUE(answers[2].is_nak(Nak::kInvalidRequest));
}

TEST(Responder, KeyRetiredWhileAReadIsAnsweredIsAnAccessError) {
  Options options;
  Pair pair(options);
  pair.a.post(read_of(pair, 2000));
  for (const Packet& packet : pair.take(pair.a)) pair.deliver(pair.b, packet);
  std::vector<std::byte> buffer(1024);
  base::Frame frame{buffer.data(), 0, 1024, 0, 0, nullptr};
  TxBurst burst{{&frame, 1}, 0};
  pair.b.transport->transmit(burst, pair.now);
  ASSERT_EQ(burst.count, 1u);
  pair.b.table.retire(pair.b.key);
  const auto rest = pair.take(pair.b);
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_TRUE(rest[0].is_nak(Nak::kRemoteAccess));
  EXPECT_EQ(rest[0].psn(), 101u);
}

TEST(Responder, SendWithInvalidateEndsAFastRegistration) {
  Pair pair;
  const Key fast = *pair.b.table.insert({.pd = pair.b.pd,
                                         .access = kAllAccess,
                                         .iova = 0,
                                         .length = 64,
                                         .base = pair.b.at(0),
                                         .kind = memory::Kind::kFast});
  pair.b.post_receive(1, {pair.b.sge(100, 8)});
  pair.a.post({.opcode = UROCE_WR_SEND_WITH_INV, .sges = {pair.a.sge(0, 8)}, .imm = fast.value});
  pair.run();
  const auto received = pair.b.poll(true);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].wc_flags, UROCE_WC_WITH_INV);
  EXPECT_EQ(received[0].imm_data, fast.value);
  memory::Span span;
  EXPECT_NE(pair.b.table.resolve(fast, pair.b.pd, 0, 8, 0, span), memory::Verdict::kOk);
}

TEST(Responder, PacketsOfStrangersAreDropped) {
  Pair pair;
  pair.a.post(write_of(pair, 10));
  auto packets = pair.take(pair.a);
  wire::RxPacket rx = packets[0].rx;
  rx.bth.dest_qpn = Qpn{0x99};
  pair.b.transport->receive(rx, pair.now);
  EXPECT_EQ(pair.b.counters().drop_no_qp, 1u);
  rx = packets[0].rx;
  rx.bth.pkey = 0x1234;
  pair.b.transport->receive(rx, pair.now);
  EXPECT_EQ(pair.b.counters().drop_bad_pkey, 1u);
  std::vector<std::byte> forged = packets[0].bytes;
  rx = packets[0].rx;
  forged[14 + 15] = std::byte{77};
  rx.ip = forged.data() + 14;
  pair.b.transport->receive(rx, pair.now);
  EXPECT_EQ(pair.b.counters().drop_wrong_source, 1u);
  EXPECT_EQ(pair.b.counters().rcvd_pkts, 0u);
}

}  // namespace
}  // namespace uroce::proto::test
