// What QPs record of retransmissions, windows, NAKs and failures.
#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/proto/pair.h"

namespace uroce::proto::test {
namespace {

Work write_of(Pair& pair, std::uint32_t bytes) {
  return {.opcode = UROCE_WR_RDMA_WRITE,
          .sges = {pair.a.sge(0, bytes)},
          .remote = End::kIova + 500000,
          .rkey = pair.b.key.value};
}

std::vector<QpEvent> events_of(const End& end) {
  std::array<QpEvent, QpEventLog::kEntries> copies;
  std::span<QpEvent> events(copies);
  EXPECT_EQ(end.transport->qp_events().read(0, events), 0u);
  return {events.begin(), events.end()};
}

std::vector<QpEventType> types_of(const std::vector<QpEvent>& events) {
  std::vector<QpEventType> types;
  for (const QpEvent& event : events) types.push_back(event.type);
  return types;
}

void record(Pair& pair) {
  for (End* end : {&pair.a, &pair.b}) {
    QpEventLog::Entries memory = QpEventLog::allocate();
    end->transport->qp_events().turn_on(memory);
  }
}

using enum QpEventType;
using Types = std::vector<QpEventType>;

TEST(QpEvents, AreNotRecordedBeforeSomebodyAsks) {
  Pair pair;
  pair.a.post({.sges = {pair.a.sge(0, 10)}});  // B has no receive
  pair.run();
  EXPECT_TRUE(events_of(pair.a).empty());
  EXPECT_TRUE(events_of(pair.b).empty());
}

TEST(QpEvents, OfMessagesWithoutLossesAreNone) {
  Pair pair;
  record(pair);
  pair.a.post(write_of(pair, 5000));
  pair.run();
  EXPECT_EQ(pair.a.poll().size(), 1u);
  EXPECT_TRUE(events_of(pair.a).empty());
  EXPECT_TRUE(events_of(pair.b).empty());
}

TEST(QpEvents, OfALostPacketNameTheNakTheWindowAndThePackets) {
  Pair pair;
  record(pair);
  pair.a.post(write_of(pair, 256 * 5));  // PSNs 100 to 104
  bool lost = false;
  pair.run([&](const End& from, const Packet& packet) {
    return &from == &pair.a && packet.psn() == 101 && !std::exchange(lost, true);
  });
  EXPECT_EQ(pair.a.poll().size(), 1u);
  const std::vector<QpEvent> sender = events_of(pair.a), receiver = events_of(pair.b);
  ASSERT_EQ(types_of(sender), (Types{kWindowCut, kWentBack}));
  EXPECT_EQ(sender[0].cause, static_cast<std::uint8_t>(CongestionCause::kLoss));
  EXPECT_EQ(sender[0].value, pair.a.snapshot().window_bytes);
  EXPECT_EQ(sender[1].cause, static_cast<std::uint8_t>(RetryCause::kSequenceNak));
  EXPECT_EQ(sender[1].psn, 101u);
  EXPECT_EQ(sender[1].value, 4u);
  EXPECT_EQ(sender[1].qpn, pair.a.qpn);
  EXPECT_EQ(sender[1].when, pair.now);
  ASSERT_EQ(types_of(receiver), (Types{kNakSent}));
  EXPECT_EQ(receiver[0].cause, static_cast<std::uint8_t>(wire::Nak::kSequence));
  EXPECT_EQ(receiver[0].psn, 101u);
}

TEST(QpEvents, OfAMissingReceiveNameTheWaitAndCountItsRepeats) {
  Pair pair;
  record(pair);
  pair.a.post({.sges = {pair.a.sge(0, 10)}});
  pair.run();
  for (int i = 0; i < 9; ++i) pair.pass(kMillisecond);
  const std::vector<QpEvent> sender = events_of(pair.a), receiver = events_of(pair.b);
  ASSERT_EQ(types_of(sender), (Types{kWaits}));
  EXPECT_EQ(sender[0].psn, 100u);
  EXPECT_EQ(sender[0].value, 640u);  // min_rnr_timer 12
  EXPECT_EQ(sender[0].count, 10u);
  ASSERT_EQ(types_of(receiver), (Types{kNakSent}));
  EXPECT_EQ(receiver[0].count, 10u);
}

TEST(QpEvents, OfASilentPeerEndWithTheFailure) {
  Pair pair(Options{.retry_cnt = 1});
  record(pair);
  pair.a.post(write_of(pair, 10));
  pair.settle(10 * kSecond, [](const End&, const Packet&) { return true; });
  const std::vector<QpEvent> events = events_of(pair.a);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.front().type, kProbed);
  EXPECT_EQ(events.back().type, kFailed);
  EXPECT_EQ(events.back().cause, UROCE_FAIL_NO_ACKNOWLEDGE);
  const auto after_timeout = [](const QpEvent& event) {
    return event.type == kWentBack && event.cause == static_cast<std::uint8_t>(RetryCause::kTimeout);
  };
  EXPECT_EQ(std::count_if(events.begin(), events.end(), after_timeout), 1);
}

TEST(QpEvents, OfABadKeyAreANakAndAFailureAtBothEnds) {
  Pair pair;
  record(pair);
  Work work = write_of(pair, 10);
  work.rkey ^= 0x100;
  pair.a.post(work);
  pair.run();
  const std::vector<QpEvent> sender = events_of(pair.a), receiver = events_of(pair.b);
  ASSERT_EQ(types_of(sender), (Types{kFailed}));
  EXPECT_EQ(sender[0].cause, UROCE_FAIL_NAK_ACCESS);
  ASSERT_EQ(types_of(receiver), (Types{kNakSent, kFailed}));
  EXPECT_EQ(receiver[0].cause, static_cast<std::uint8_t>(wire::Nak::kRemoteAccess));
  EXPECT_EQ(receiver[1].cause, 0);
  EXPECT_EQ(receiver[1].value, static_cast<std::uint32_t>(AsyncEvent::kQpAccessError));
}

TEST(QpEvents, OfAnInvalidationThatFailsNameItAndNotAnEvent) {
  Pair pair;
  record(pair);
  pair.b.post_receive(1, {pair.b.sge(0, 100)});
  pair.a.post({.opcode = UROCE_WR_SEND_WITH_INV, .sges = {pair.a.sge(0, 10)}, .imm = 0x12345678});
  pair.run();
  const std::vector<QpEvent> receiver = events_of(pair.b);
  ASSERT_EQ(types_of(receiver), (Types{kFailed}));
  EXPECT_EQ(receiver[0].cause, UROCE_FAIL_INVALIDATED_KEY);
}

TEST(QpEventLog, KeepsTheNewestAndNumbersThem) {
  QpEventLog log;
  QpEventLog::Entries memory = QpEventLog::allocate();
  log.turn_on(memory);
  constexpr std::uint32_t kAdded = QpEventLog::kEntries + 10;
  for (std::uint32_t i = 0; i < kAdded; ++i) log.add({.psn = i});
  std::array<QpEvent, 4> copies;
  const auto read = [&](std::uint64_t first) {
    std::span<QpEvent> out(copies);
    const std::uint64_t begin = log.read(first, out);
    std::string text = std::to_string(begin) + ":";
    for (const QpEvent& event : out) text += " " + std::to_string(event.psn);
    return text;
  };
  EXPECT_EQ(read(0), "10: 10 11 12 13");
  EXPECT_EQ(read(14), "14: 14 15 16 17");
  EXPECT_EQ(read(kAdded - 2), "1032: 1032 1033");
  EXPECT_EQ(read(kAdded), "1034:");
  EXPECT_EQ(read(kAdded + 100), "1034:");
  log.turn_off();
  EXPECT_EQ(read(1033), "1033: 1033");
  memory = QpEventLog::allocate();
  log.turn_on(memory);
  EXPECT_EQ(read(0), "0:");
}

TEST(QpEventLog, CountsRepeatsOfTheNewest) {
  QpEventLog log;
  QpEventLog::Entries memory = QpEventLog::allocate();
  log.turn_on(memory);
  const auto add = [&](std::uint32_t psn, Nanos when) { log.add({.when = when, .psn = psn, .value = psn + 1}); };
  for (std::uint32_t psn = 0; psn < QpEventLog::kCompared; ++psn) add(psn, 1);
  for (const std::uint32_t psn : {0u, 0u, 7u}) add(psn, 2);
  EXPECT_EQ(log.end(), 8u);
  add(8, 3);
  add(0, 3);  // too far back
  EXPECT_EQ(log.end(), 10u);
  std::array<QpEvent, 10> copies;
  std::span<QpEvent> out(copies);
  log.read(0, out);
  std::vector<std::uint32_t> counts;
  for (const QpEvent& event : out) counts.push_back(event.count);
  EXPECT_EQ(counts, (std::vector<std::uint32_t>{3, 1, 1, 1, 1, 1, 1, 2, 1, 1}));
  EXPECT_EQ(out[0].when, 2u);
}

}  // namespace
}  // namespace uroce::proto::test
