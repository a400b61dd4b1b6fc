// Rules of `urocectl fault verbs` for completions: late, swapped or lost ones, and receives that are not there.
#include "proto/work/held_completions.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "tests/unit/proto/pair.h"

namespace uroce::proto::test {
namespace {

using enum CompletionFault::Kind;
using Numbers = std::vector<std::uint64_t>;
constexpr Nanos kDelay = 50 * kMillisecond;

std::unique_ptr<QpFaults> rules(std::initializer_list<FaultPlan> plans) {
  auto faults = std::make_unique<QpFaults>();
  for (const FaultPlan& plan : plans) faults->entries.push_back({std::make_shared<FaultRule>(plan), 1});
  return faults;
}
FaultPlan completion(CompletionFault::Kind kind, std::uint64_t nth,
                     std::uint64_t operations = ~FaultPlan::kReceives) {
  return {.operations = operations, .nth = nth, .completion = {kind, kDelay}};
}
FaultPlan hidden(std::uint64_t nth) {
  return {.operations = FaultPlan::kReceives, .nth = nth, .most = 1, .hides = true};
}
Numbers numbers(const std::vector<uroce_cqe>& entries) {
  Numbers all;
  for (const uroce_cqe& entry : entries) all.push_back(entry.wr_id);
  return all;
}

/// SENDs `first` to `last`, with a receive for each.
void exchange(Pair& pair, std::uint64_t first, std::uint64_t last) {
  for (std::uint64_t i = first; i <= last; ++i) {
    pair.b.post_receive(i, {pair.b.sge(0, 100)});
    Work work{.wr_id = i, .sges = {pair.a.sge(0, 8)}};
    if (pair.a.options.type == QpType::kUd) {
      work.ud = Datagram{.ah = kPeer.value, .remote_qpn = 0x22, .remote_qkey = 0x1234};
    }
    pair.a.post(work);
  }
  pair.run();
}

/// Of each service, and of both queues: SENDs of a, or receives of b.
struct Side {
  QpType type;
  bool receives;
};
class HeldCompletion : public testing::TestWithParam<Side> {
 protected:
  void give(std::unique_ptr<QpFaults> faults) {
    faults_ = std::move(faults);
    end().transport->set_faults(end().qp, faults_.get());
  }
  End& end() { return GetParam().receives ? pair_.b : pair_.a; }
  std::uint64_t operations() const { return GetParam().receives ? FaultPlan::kReceives : ~FaultPlan::kReceives; }
  Numbers poll() { return numbers(end().poll(GetParam().receives)); }

  Pair pair_ = Pair::of(GetParam().type);
  std::unique_ptr<QpFaults> faults_;
};

TEST_P(HeldCompletion, ALateOneHoldsBackThoseAfterIt) {
  give(rules({completion(kLate, 2, operations())}));
  exchange(pair_, 1, 4);
  EXPECT_EQ(poll(), Numbers{1});
  pair_.pass(kDelay / 2);
  EXPECT_EQ(poll(), Numbers{});
  pair_.pass(kDelay);
  EXPECT_EQ(poll(), (Numbers{2, 3, 4}));
  exchange(pair_, 5, 6);
  EXPECT_EQ(poll(), (Numbers{5, 6}));
}

TEST_P(HeldCompletion, ALostOneNeverComes) {
  give(rules({completion(kLost, 2, operations())}));
  exchange(pair_, 1, 3);
  pair_.pass(kDelay);
  EXPECT_EQ(poll(), (Numbers{1, 3}));
}

TEST_P(HeldCompletion, ASwappedOneFollowsTheNext) {
  give(rules({completion(kSwapped, 2, operations())}));
  exchange(pair_, 1, 4);
  EXPECT_EQ(poll(), (Numbers{1, 3, 2, 4}));
}

TEST_P(HeldCompletion, ASwappedOneWithoutANextComesAfterItsTime) {
  give(rules({completion(kSwapped, 2, operations())}));
  exchange(pair_, 1, 2);
  EXPECT_EQ(poll(), Numbers{1});
  pair_.pass(kDelay + kMillisecond);
  EXPECT_EQ(poll(), Numbers{2});
}

TEST_P(HeldCompletion, AllThatAreSwappedComeInPairs) {
  give(rules({completion(kSwapped, 0, operations())}));
  exchange(pair_, 1, 6);
  EXPECT_EQ(poll(), (Numbers{2, 1, 4, 3, 6, 5}));
}

TEST_P(HeldCompletion, ThatIsLateBehindASwappedOneKeepsItsTime) {
  give(rules({completion(kSwapped, 1, operations()), completion(kLate, 1, operations())}));
  exchange(pair_, 1, 3);  // the first rule hides the first one from the second
  EXPECT_EQ(poll(), Numbers{});
  EXPECT_EQ(end().used_places(), GetParam().receives ? 0u : 3u);
  pair_.pass(kDelay + kMillisecond);
  EXPECT_EQ(poll(), (Numbers{2, 1, 3}));
  EXPECT_EQ(end().used_places(), 0u);
}

TEST_P(HeldCompletion, ComesBeforeTheFlushOfTheQp) {
  give(rules({completion(kLate, 1, operations())}));
  exchange(pair_, 1, 2);
  EXPECT_EQ(poll(), Numbers{});
  end().to(QpState::kErr, pair_.now);
  EXPECT_EQ(poll(), (Numbers{1, 2}));
}

TEST_P(HeldCompletion, IsForgottenWithAReset) {
  give(rules({completion(kLate, 1, operations())}));
  exchange(pair_, 1, 2);
  end().to(QpState::kReset, pair_.now);
  pair_.pass(2 * kDelay);
  EXPECT_EQ(poll(), Numbers{});
}

// As a program takes a place back by polling; else it would post without end, and its CQ would overrun.
TEST_P(HeldCompletion, KeepsThePlacesOfTheSendQueue) {
  if (GetParam().receives) return;
  give(rules({completion(kLate, 2, operations())}));
  exchange(pair_, 1, 5);
  EXPECT_EQ(poll(), Numbers{1});
  EXPECT_EQ(end().used_places(), 4u);
  pair_.pass(2 * kDelay);
  EXPECT_EQ(end().used_places(), 0u);
  EXPECT_EQ(poll(), (Numbers{2, 3, 4, 5}));
  auto before = std::move(faults_);
  give(rules({completion(kLost, 1, operations())}));
  exchange(pair_, 6, 7);
  EXPECT_EQ(poll(), Numbers{7});
  EXPECT_EQ(end().used_places(), 0u);
  before = std::exchange(faults_, nullptr);
  give(rules({completion(kSwapped, 1, operations())}));
  exchange(pair_, 8, 8);
  EXPECT_EQ(end().used_places(), 1u);
  exchange(pair_, 9, 9);
  EXPECT_EQ(poll(), (Numbers{9, 8}));
  EXPECT_EQ(end().used_places(), 0u);
}

TEST_P(HeldCompletion, ComesWhenItsRuleIsRemoved) {
  give(rules({completion(kLate, 2, operations())}));
  exchange(pair_, 1, 3);
  const auto before = std::move(faults_);
  give(nullptr);
  EXPECT_EQ(poll(), (Numbers{1, 2, 3}));
  exchange(pair_, 4, 5);
  EXPECT_EQ(poll(), (Numbers{4, 5}));
}

INSTANTIATE_TEST_SUITE_P(Of, HeldCompletion,
                         testing::Values(Side{QpType::kRc, false}, Side{QpType::kRc, true},
                                         Side{QpType::kUc, false}, Side{QpType::kUc, true},
                                         Side{QpType::kUd, false}, Side{QpType::kUd, true}));

TEST(HeldCompletions, AFailureComesAfterThem) {
  Pair pair;
  const auto faults = rules({completion(kLate, 1), {.nth = 2, .failure = injected_failure(UROCE_WC_GENERAL_ERR)}});
  pair.a.transport->set_faults(pair.a.qp, faults.get());
  exchange(pair, 1, 4);
  const auto sent = pair.a.poll();
  EXPECT_EQ(numbers(sent), (Numbers{1, 2, 3, 4}));
  EXPECT_EQ(sent[0].status, UROCE_WC_SUCCESS);
  EXPECT_EQ(sent[1].status, UROCE_WC_SUCCESS) << "the second rule counts what the first one left";
  EXPECT_EQ(sent[2].status, UROCE_WC_GENERAL_ERR);
}

TEST(HeldCompletions, UnsignaledRequestsHaveNone) {
  Pair pair;
  const auto faults = rules({completion(kLate, 0)});
  pair.a.transport->set_faults(pair.a.qp, faults.get());
  pair.b.post_receive(1, {pair.b.sge(0, 100)});
  pair.a.post({.wr_id = 1, .flags = 0, .sges = {pair.a.sge(0, 8)}});
  pair.run();
  pair.pass(2 * kDelay);
  EXPECT_EQ(pair.a.poll().size(), 0u);
  EXPECT_EQ(pair.b.poll(true).size(), 1u);
  EXPECT_EQ(faults->entries.front().rule->matched, 0u);
  EXPECT_TRUE(faults->sends.chosen.empty()) << "or they would be as many as messages";
}

TEST(HeldCompletions, AreThoseOfAQpThatSignalsAll) {
  Pair pair({.signal_all = true});
  const auto faults = rules({completion(kLost, 1)});
  pair.a.transport->set_faults(pair.a.qp, faults.get());
  for (std::uint64_t i = 1; i <= 2; ++i) {
    pair.b.post_receive(i, {pair.b.sge(0, 100)});
    pair.a.post({.wr_id = i, .flags = 0, .sges = {pair.a.sge(0, 8)}});
  }
  pair.run();
  EXPECT_EQ(numbers(pair.a.poll()), Numbers{2});
}

TEST(HeldCompletions, NothingIsChosenInAQpThatFailed) {
  Pair pair;
  const auto faults = rules({completion(kLost, 0)});
  pair.a.transport->set_faults(pair.a.qp, faults.get());
  for (std::uint64_t i = 1; i <= 3; ++i) pair.a.post({.wr_id = i, .sges = {pair.a.sge(0, 8)}});
  pair.take(pair.a);
  EXPECT_EQ(faults->sends.chosen.size(), 3u);
  pair.a.to(QpState::kErr, pair.now);
  EXPECT_TRUE(faults->sends.chosen.empty());
  EXPECT_EQ(numbers(pair.a.poll()), (Numbers{1, 2, 3})) << "flushed";
}

TEST(HeldCompletions, ThatOverrunTheirCqEndTheQp) {
  Pair pair({.entries = 64, .cq_entries = 32});
  const auto faults = rules({completion(kLate, 1)});
  pair.a.transport->set_faults(pair.a.qp, faults.get());
  exchange(pair, 1, 32);
  pair.b.poll(true);
  exchange(pair, 33, 40);
  EXPECT_EQ(pair.a.snapshot().state, QpState::kRts);
  pair.a.transport->set_faults(pair.a.qp, nullptr);
  EXPECT_EQ(pair.a.snapshot().state, QpState::kErr);
}

TEST(HeldCompletions, OfADestroyedQpAreGone) {
  Pair pair;
  const auto faults = rules({completion(kLate, 1)});
  pair.a.transport->set_faults(pair.a.qp, faults.get());
  exchange(pair, 1, 3);
  pair.a.transport->destroy(pair.a.qp, pair.now);
  EXPECT_TRUE(faults->sends.held.empty());
  pair.pass(2 * kDelay);
  EXPECT_TRUE(pair.a.poll().empty());
}

TEST(HeldCompletions, AreChosenForRequestsUnderWayWhenTheRulesChange) {
  Pair pair;
  const FaultPlan late = completion(kLost, 1);
  const auto first = rules({late});
  pair.a.transport->set_faults(pair.a.qp, first.get());
  pair.b.post_receive(1, {pair.b.sge(0, 100)});
  pair.a.post({.wr_id = 1, .sges = {pair.a.sge(0, 8)}});
  const auto packets = pair.take(pair.a);
  const auto second = rules({late});
  pair.a.transport->set_faults(pair.a.qp, second.get());
  for (const Packet& packet : packets) pair.deliver(pair.b, packet);
  pair.run();
  EXPECT_EQ(pair.a.poll().size(), 0u);
}

TEST(HeldCompletions, AreBounded) {
  Pair pair({.entries = 8192, .cq_entries = 65536});
  const auto faults = rules({completion(kLate, 1)});
  pair.a.transport->set_faults(pair.a.qp, faults.get());
  for (std::uint64_t i = 1; i <= kMostHeld + 64; i += 64) exchange(pair, i, i + 63);
  const auto sent = pair.a.poll();
  ASSERT_FALSE(sent.empty()) << "the oldest comes before its time";
  EXPECT_EQ(sent.front().wr_id, 1u);
  EXPECT_EQ(sent.size(), kMostHeld + 64) << "and with it those that waited for it alone";
}

TEST(HiddenReceive, OfARcPeerIsAnsweredWithAnRnrNak) {
  Pair pair;
  const auto faults = rules({hidden(2)});
  pair.b.transport->set_faults(pair.b.qp, faults.get());
  exchange(pair, 1, 3);
  EXPECT_EQ(numbers(pair.b.poll(true)), Numbers{1});
  EXPECT_EQ(pair.b.counters().rnr_nak_sent, 1u);
  pair.settle(kSecond);
  EXPECT_EQ(numbers(pair.b.poll(true)), (Numbers{2, 3})) << "the request is repeated, and finds it";
  EXPECT_EQ(numbers(pair.a.poll()), (Numbers{1, 2, 3}));
  EXPECT_EQ(pair.b.counters().rnr_nak_sent, 1u);
}

TEST(HiddenReceive, OfASharedQueueStaysThere) {
  Pair pair = Pair::of(QpType::kRc, true);
  const auto faults = rules({hidden(1)});
  pair.b.transport->set_faults(pair.b.qp, faults.get());
  pair.b.post_receive(1, {{End::kIova, 100, pair.b.srq_key.value}});
  pair.a.post({.wr_id = 1, .sges = {pair.a.sge(0, 8)}});
  pair.run();
  EXPECT_EQ(pair.b.counters().rnr_nak_sent, 1u);
  EXPECT_EQ(pair.b.srq->posted(), 1u);
  pair.settle(kSecond);
  EXPECT_EQ(numbers(pair.b.poll(true)), Numbers{1});
}

TEST(HiddenReceive, OfADatagramLosesIt) {
  Pair pair = Pair::of(QpType::kUd);
  const auto faults = rules({hidden(2)});
  pair.b.transport->set_faults(pair.b.qp, faults.get());
  exchange(pair, 1, 3);
  EXPECT_EQ(numbers(pair.a.poll()), (Numbers{1, 2, 3}));
  EXPECT_EQ(numbers(pair.b.poll(true)), (Numbers{1, 2})) << "the third datagram takes the second receive";
}

TEST(HiddenReceive, IsNoneWhileNoneIsPosted) {
  Pair pair;
  const auto faults = rules({hidden(1)});
  pair.b.transport->set_faults(pair.b.qp, faults.get());
  pair.a.post({.wr_id = 1, .sges = {pair.a.sge(0, 8)}});
  pair.run();
  EXPECT_EQ(faults->entries.front().rule->matched, 0u);
  EXPECT_EQ(pair.b.counters().rnr_nak_sent, 1u);
}

}  // namespace
}  // namespace uroce::proto::test
