// Rules of `urocectl fault verbs`: the chosen work request ends with the chosen status, as after a real error, and
// QPs without rules see nothing of it.
#include "proto/state/faults.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "abi/operations.h"
#include "tests/unit/proto/pair.h"

namespace uroce::proto::test {
namespace {

std::shared_ptr<FaultRule> rule(const FaultPlan& plan) { return std::make_shared<FaultRule>(plan); }
FaultPlan status_at(std::uint8_t status, std::uint64_t nth, std::uint64_t operations = ~FaultPlan::kReceives) {
  return {.operations = operations, .nth = nth, .failure = injected_failure(status)};
}
/// The rules of one QP.
std::unique_ptr<QpFaults> faults_of(std::initializer_list<std::shared_ptr<FaultRule>> rules,
                                    std::uint64_t stream = 1) {
  auto faults = std::make_unique<QpFaults>();
  for (const auto& each : rules) faults->entries.push_back({each, stream});
  return faults;
}
std::uint32_t vendor_err(std::uint8_t status) { return status * 16u + UROCE_FAIL_INJECTED; }

Work send_of(Pair& pair, std::uint64_t wr_id) { return {.wr_id = wr_id, .sges = {pair.a.sge(0, 8)}}; }
Work datagram_of(Pair& pair, std::uint64_t wr_id) {
  Work work = send_of(pair, wr_id);
  work.ud = Datagram{.ah = kPeer.value, .remote_qpn = 0x22, .remote_qkey = 0x1234};
  return work;
}
std::size_t requests_of(const Pair& pair) {
  std::size_t count = 0;
  for (const Packet& packet : pair.log) count += packet.rx.info->has(wire::kRequest);
  return count;
}

TEST(FaultCodes, EachStatusHasACodeOfItsOwnInEightBits) {
  std::vector<std::uint8_t> codes;
  for (std::uint8_t status = 1; status <= UROCE_WC_TM_RNDV_INCOMPLETE; ++status) {
    const std::uint8_t code = injected_failure(status);
    EXPECT_EQ(vendor_err_of(code), vendor_err(status));
    EXPECT_EQ(std::count(codes.begin(), codes.end(), code), 0);
    codes.push_back(code);
  }
  EXPECT_EQ(vendor_err_of(0), 0u);
  EXPECT_EQ(vendor_err_of(UROCE_FAIL_LOSS), std::uint32_t{UROCE_FAIL_LOSS});
}

/// Every ibv_wc_status but success.
class EachStatus : public testing::TestWithParam<std::uint8_t> {};

TEST_P(EachStatus, OfASendComesAfterGoodOnesAndFlushesTheRest) {
  Pair pair;
  const auto chosen = rule(status_at(GetParam(), 3));
  const auto faults = faults_of({chosen});
  pair.a.transport->set_faults(pair.a.qp, faults.get());
  for (std::uint64_t i = 1; i <= 5; ++i) {
    pair.b.post_receive(i, {pair.b.sge(0, 100)});
    pair.a.post(send_of(pair, i));
  }
  pair.run();
  const auto sent = pair.a.poll();
  ASSERT_EQ(sent.size(), 5u);
  EXPECT_EQ(sent[0].status, UROCE_WC_SUCCESS);
  EXPECT_EQ(sent[1].status, UROCE_WC_SUCCESS);
  EXPECT_EQ(sent[2].wr_id, 3u);
  EXPECT_EQ(sent[2].status, GetParam());
  EXPECT_EQ(sent[2].vendor_err, vendor_err(GetParam()));
  EXPECT_EQ(sent[3].vendor_err, std::uint32_t{UROCE_FAIL_FLUSHED});
  EXPECT_EQ(sent[4].vendor_err, std::uint32_t{UROCE_FAIL_FLUSHED});
  EXPECT_EQ(pair.a.snapshot().state, QpState::kErr);
  EXPECT_TRUE(pair.a.events().empty()) << "as after a completion error of a real request";
  EXPECT_EQ(requests_of(pair), 2u) << "the request itself is not sent";
  EXPECT_EQ(pair.b.poll(true).size(), 2u);
  EXPECT_EQ(pair.b.snapshot().state, QpState::kRts);
  EXPECT_EQ(chosen->matched, 3u);
  EXPECT_EQ(chosen->fired, 1u);
  EXPECT_EQ(pair.a.counters().req_cqe_error, 1u);
}

TEST_P(EachStatus, OfADatagramStopsTheSendQueueOnly) {
  Pair pair = Pair::of(QpType::kUd);
  const auto faults = faults_of({rule(status_at(GetParam(), 2))});
  pair.a.transport->set_faults(pair.a.qp, faults.get());
  pair.b.post_receive(1, {pair.b.sge(0, 100)});
  for (std::uint64_t i = 1; i <= 3; ++i) pair.a.post(datagram_of(pair, i));
  pair.run();
  const auto sent = pair.a.poll();
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(sent[0].status, UROCE_WC_SUCCESS);
  EXPECT_EQ(sent[1].vendor_err, vendor_err(GetParam()));
  EXPECT_EQ(sent[2].status, UROCE_WC_WR_FLUSH_ERR);
  EXPECT_EQ(pair.a.snapshot().state, GetParam() == UROCE_WC_WR_FLUSH_ERR ? QpState::kErr : QpState::kSqe);
}

TEST_P(EachStatus, OfAReceiveEndsBothSides) {
  Pair pair;
  const auto faults = faults_of({rule(status_at(GetParam(), 2, FaultPlan::kReceives))});
  pair.b.transport->set_faults(pair.b.qp, faults.get());
  for (std::uint64_t i = 1; i <= 3; ++i) {
    pair.b.post_receive(i, {pair.b.sge(0, 100)});
    pair.a.post(send_of(pair, i));
  }
  pair.run();
  const auto received = pair.b.poll(true);
  ASSERT_EQ(received.size(), 3u);
  EXPECT_EQ(received[0].status, UROCE_WC_SUCCESS);
  EXPECT_EQ(received[1].wr_id, 2u);
  EXPECT_EQ(received[1].status, GetParam());
  EXPECT_EQ(received[1].vendor_err, vendor_err(GetParam()));
  EXPECT_EQ(received[2].vendor_err, std::uint32_t{UROCE_FAIL_FLUSHED});
  EXPECT_EQ(pair.b.snapshot().state, QpState::kErr);
  // What the peer and the program see follows from the status, as after a real error.
  const bool too_long = GetParam() == UROCE_WC_LOC_LEN_ERR;
  const auto sent = pair.a.poll();
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(sent[0].status, UROCE_WC_SUCCESS);
  EXPECT_EQ(sent[1].status, too_long ? UROCE_WC_REM_INV_REQ_ERR : UROCE_WC_REM_OP_ERR);
  const auto events = pair.b.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].type, too_long                              ? AsyncEvent::kQpRequestError
                            : GetParam() == UROCE_WC_LOC_PROT_ERR ? AsyncEvent::kQpAccessError
                                                                  : AsyncEvent::kQpFatal);
}

INSTANTIATE_TEST_SUITE_P(Of, EachStatus, testing::Range<std::uint8_t>(1, UROCE_WC_TM_RNDV_INCOMPLETE + 1));

TEST(Faults, AReceiveOfASharedQueueFailsForTheQpThatTookIt) {
  Pair pair = Pair::of(QpType::kRc, true);
  const auto faults = faults_of({rule(status_at(UROCE_WC_GENERAL_ERR, 2, FaultPlan::kReceives))});
  pair.b.transport->set_faults(pair.b.qp, faults.get());
  for (std::uint64_t i = 1; i <= 3; ++i) {
    pair.b.post_receive(i, {{End::kIova, 100, pair.b.srq_key.value}});
    pair.a.post(send_of(pair, i));
  }
  pair.run();
  const auto received = pair.b.poll(true);
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[0].status, UROCE_WC_SUCCESS);
  EXPECT_EQ(received[1].status, UROCE_WC_GENERAL_ERR);
  EXPECT_EQ(pair.b.srq->posted(), 1u) << "the rest is for other QPs";
}

TEST(Faults, AReceiveOfADatagramEndsTheReceiverOnly) {
  Pair pair = Pair::of(QpType::kUd);
  const auto faults = faults_of({rule(status_at(UROCE_WC_GENERAL_ERR, 1, FaultPlan::kReceives))});
  pair.b.transport->set_faults(pair.b.qp, faults.get());
  pair.b.post_receive(1, {pair.b.sge(0, 100)});
  pair.a.post(datagram_of(pair, 1));
  pair.run();
  EXPECT_EQ(pair.a.poll().at(0).status, UROCE_WC_SUCCESS);
  EXPECT_EQ(pair.b.poll(true).at(0).status, UROCE_WC_GENERAL_ERR);
  EXPECT_EQ(pair.b.events().at(0).type, AsyncEvent::kQpFatal);
  EXPECT_EQ(pair.b.snapshot().state, QpState::kErr);
}

TEST(Faults, AQpWithoutARuleIsUntouchedNextToOneThatHasSome) {
  Pair pair;
  End other(Options{}, Qpn{0x33}, 1, &pair.a);
  connect(other, {Qpn{0x44}, 100, pair.b.path.source, pair.b.path.source_mac}, pair.now);
  const auto chosen = rule(status_at(UROCE_WC_FATAL_ERR, 1));
  const auto faults = faults_of({chosen});
  other.transport->set_faults(other.qp, faults.get());
  for (std::uint64_t i = 1; i <= 20; ++i) {
    pair.b.post_receive(i, {pair.b.sge(0, 100)});
    pair.a.post(send_of(pair, i));
  }
  pair.run();
  const auto sent = pair.a.poll();
  ASSERT_EQ(sent.size(), 20u);
  for (const uroce_cqe& cqe : sent) EXPECT_EQ(cqe.status, UROCE_WC_SUCCESS);
  EXPECT_EQ(chosen->matched, 0u);
}

TEST(Faults, EndWithTheRule) {
  Pair pair = Pair::of(QpType::kRc, true);
  const auto sends = rule(status_at(UROCE_WC_FATAL_ERR, 1)),
             receives = rule(status_at(UROCE_WC_FATAL_ERR, 1, FaultPlan::kReceives));
  const auto of_a = faults_of({sends}), of_b = faults_of({receives});
  pair.a.transport->set_faults(pair.a.qp, of_a.get());
  pair.b.transport->set_faults(pair.b.qp, of_b.get());
  pair.a.transport->set_faults(pair.a.qp, nullptr);
  pair.b.transport->set_faults(pair.b.qp, nullptr);
  pair.b.post_receive(1, {{End::kIova, 100, pair.b.srq_key.value}});
  pair.a.post(send_of(pair, 1));
  pair.run();
  ASSERT_EQ(pair.a.poll().at(0).status, UROCE_WC_SUCCESS);
  EXPECT_EQ(pair.b.poll(true).at(0).status, UROCE_WC_SUCCESS);
  EXPECT_EQ(sends->matched + receives->matched, 0u);
}

TEST(Faults, AResetKeepsTheRulesAndTheCounts) {
  Pair pair;
  const auto chosen = rule(status_at(UROCE_WC_FATAL_ERR, 2));
  const auto faults = faults_of({chosen});
  pair.a.transport->set_faults(pair.a.qp, faults.get());
  pair.b.post_receive(1, {pair.b.sge(0, 100)});
  pair.a.post(send_of(pair, 1));
  pair.run();
  ASSERT_EQ(pair.a.poll().at(0).status, UROCE_WC_SUCCESS);
  ASSERT_EQ(pair.a.to(QpState::kReset, pair.now).error, 0);
  connect(pair.a, {pair.b.qpn, 100, pair.b.path.source, pair.b.path.source_mac}, pair.now);
  pair.a.post(send_of(pair, 2));
  pair.run();
  EXPECT_EQ(pair.a.poll().at(0).status, UROCE_WC_FATAL_ERR);
}

TEST(Faults, AreCountedOnWhenOtherRulesCome) {
  Pair pair;
  const auto chosen = rule(status_at(UROCE_WC_FATAL_ERR, 3)), other = rule({.operations = 0});
  const auto before = faults_of({chosen}), after = faults_of({other, chosen});
  pair.a.transport->set_faults(pair.a.qp, before.get());
  for (std::uint64_t i = 1; i <= 3; ++i) pair.b.post_receive(i, {pair.b.sge(0, 100)});
  pair.a.post(send_of(pair, 1));
  pair.a.post(send_of(pair, 2));
  pair.run();
  pair.a.transport->set_faults(pair.a.qp, after.get());
  pair.a.post(send_of(pair, 3));
  pair.run();
  const auto sent = pair.a.poll();
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(sent[1].status, UROCE_WC_SUCCESS);
  EXPECT_EQ(sent[2].status, UROCE_WC_FATAL_ERR);
}

TEST(Faults, AreOfTheOperationsThatTheRuleNames) {
  for (std::uint8_t opcode = 0; opcode <= UROCE_WR_REG_MR; ++opcode) {
    if (!abi::operation_of(opcode).of_type(static_cast<std::uint32_t>(QpType::kRc))) continue;
    for (const bool named : {true, false}) {
      Pair pair(Options{.timeout = 8, .retry_cnt = 1});
      const std::uint64_t bit = std::uint64_t{1} << opcode;
      const auto faults = faults_of({rule(status_at(UROCE_WC_GENERAL_ERR, 1, named ? bit : ~bit))});
      pair.a.transport->set_faults(pair.a.qp, faults.get());
      Work work = send_of(pair, 1);
      work.opcode = opcode;
      work.rkey = pair.b.key.value;
      work.remote = End::kIova;
      pair.b.post_receive(1, {pair.b.sge(0, 100)});
      pair.a.post(work);
      pair.settle(10 * kSecond);  // a SEND that invalidates what it may not is not answered
      const auto sent = pair.a.poll();
      ASSERT_EQ(sent.size(), 1u) << int{opcode};
      EXPECT_EQ(sent[0].status == UROCE_WC_GENERAL_ERR, named) << int{opcode};
      EXPECT_EQ(sent[0].opcode, abi::operation_of(opcode).wc_opcode);
    }
  }
}

TEST(Faults, AreOfThePeerThatTheRuleNames) {
  for (const bool right : {true, false}) {
    Pair pair;
    FaultPlan by_number = status_at(UROCE_WC_GENERAL_ERR, 1), by_address = status_at(UROCE_WC_FATAL_ERR, 1);
    by_number.peer = Qpn{0x99};
    by_address.peer_address = address_of(right ? 2 : 3);
    const auto faults = faults_of({rule(by_number), rule(by_address)});
    pair.a.transport->set_faults(pair.a.qp, faults.get());
    pair.b.post_receive(1, {pair.b.sge(0, 100)});
    pair.a.post(send_of(pair, 1));
    pair.run();
    EXPECT_EQ(pair.a.poll().at(0).status, right ? UROCE_WC_FATAL_ERR : UROCE_WC_SUCCESS);
  }
}

TEST(Faults, AnEventAloneHarmsNothing) {
  for (const AsyncEvent event : {AsyncEvent::kQpFatal, AsyncEvent::kCqError, AsyncEvent::kPortError,
                                 AsyncEvent::kSrqError, AsyncEvent::kWqFatal}) {
    Pair pair;
    const auto faults = faults_of({rule({.nth = 1, .event = event})});
    pair.a.transport->set_faults(pair.a.qp, faults.get());
    pair.b.post_receive(1, {pair.b.sge(0, 100)});
    pair.a.post(send_of(pair, 1));
    pair.run();
    EXPECT_EQ(pair.a.poll().at(0).status, UROCE_WC_SUCCESS);
    EXPECT_EQ(pair.a.snapshot().state, QpState::kRts);
    const auto events = pair.a.events();
    if (event == AsyncEvent::kSrqError || event == AsyncEvent::kWqFatal) {
      EXPECT_TRUE(events.empty()) << "the QP has no such object";
      continue;
    }
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].type, event);
    EXPECT_EQ(events[0].owner, 42u);
    EXPECT_EQ(events[0].object, event == AsyncEvent::kCqError ? 0u : 0x11u) << "its send CQ, or the QP";
  }
}

TEST(Faults, AFatalOneIsALocalFailureOfTheQp) {
  Pair pair;
  FaultPlan plan = status_at(UROCE_WC_WR_FLUSH_ERR, 2);
  plan.fatal = true;
  const auto faults = faults_of({rule(plan)});
  pair.a.transport->set_faults(pair.a.qp, faults.get());
  for (std::uint64_t i = 1; i <= 2; ++i) {
    pair.b.post_receive(i, {pair.b.sge(0, 100)});
    pair.a.post(send_of(pair, i));
  }
  pair.run();
  const auto sent = pair.a.poll();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].status, UROCE_WC_SUCCESS);
  EXPECT_EQ(sent[1].status, UROCE_WC_WR_FLUSH_ERR);
  const auto events = pair.a.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].type, AsyncEvent::kQpFatal);
  EXPECT_EQ(pair.a.snapshot().state, QpState::kErr);
}

TEST(FaultTrigger, NthIsThatMatchAndEveryIsItsMultiples) {
  const FaultPlan third{.nth = 3}, thirds{.every = 3};
  for (std::uint64_t match = 1; match <= 9; ++match) {
    EXPECT_EQ(third.fires(1, match), match == 3);
    EXPECT_EQ(thirds.fires(1, match), match % 3 == 0);
  }
}

TEST(FaultTrigger, DrawsAreTheSameForTheSameSeedAndDifferBetweenStreams) {
  const auto drawn = [](std::uint64_t seed, std::uint64_t stream) {
    const FaultPlan plan{.probability = 0.1, .seed = seed};
    std::vector<bool> all;
    for (std::uint64_t match = 1; match <= 10000; ++match) all.push_back(plan.fires(stream, match));
    return all;
  };
  const auto first = drawn(7, 1);
  EXPECT_EQ(first, drawn(7, 1));
  EXPECT_NE(first, drawn(8, 1));
  EXPECT_NE(first, drawn(7, 2));
  const auto share = std::count(first.begin(), first.end(), true);
  EXPECT_GT(share, 850);
  EXPECT_LT(share, 1150);
}

TEST(FaultTrigger, CountEndsARule) {
  FaultRule all(FaultPlan{.most = 2});
  int fired = 0;
  for (std::uint64_t match = 1; match <= 10; ++match) fired += all.take(match % 3, match);
  EXPECT_EQ(fired, 2);
  EXPECT_EQ(all.fired, 2u);
  EXPECT_EQ(all.matched, 10u);
}

}  // namespace
}  // namespace uroce::proto::test
