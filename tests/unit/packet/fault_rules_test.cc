// Rules of `urocectl fault`: which frames each is for, and what several do together. In virtual time, without a
// port.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "drivers/packet/controls.h"
#include "drivers/packet/fault/lane.h"
#include "tests/unit/packet/roce_frame.h"
#include "wire/packet.h"

namespace uroce::packet_test {
namespace {

using fault::Plan;
using fault::Verdict;

class Lane {
 public:
  explicit Lane(const std::string& rules, pcap::Direction direction = pcap::Direction::kOutbound)
      : lane_(direction) {
    EXPECT_EQ(controls.set_fault(rules), "");
    restart();
  }
  void add(const std::string& rules) {
    EXPECT_EQ(controls.add_fault(rules), "");
    restart();
  }
  void remove(const std::string& name) {
    EXPECT_EQ(controls.remove_fault(name), "");
    restart();
  }
  Verdict judge(const RoceFrame& of = {}, std::uint32_t sender = 0) {
    bytes_ = roce(of);
    frame_ = {};
    frame_.data = bytes_.data();
    frame_.length = static_cast<std::uint32_t>(bytes_.size());
    frame_.sender = sender;
    return lane_.judge(frame_, now, controls.faults());
  }
  bool drops(const RoceFrame& of = {}, std::uint32_t sender = 0) { return judge(of, sender).drop; }
  /// 'x': lost.
  std::string losses(int frames) {
    std::string all;
    for (int i = 0; i < frames; ++i) all += drops() ? 'x' : '.';
    return all;
  }
  void hold(const Verdict& verdict) { lane_.hold(frame_, verdict); }
  void release() { lane_.release_due(now); }
  std::size_t ready() { return lane_.ready().size(); }
  std::uint32_t length() const { return frame_.length; }
  std::string shown(const std::string& name) const {
    for (const auto& [key, value] : controls.describe()) {
      if (key == name) return value;
    }
    return "-";
  }

  packet::Controls controls{"test"};
  Nanos now = kSecond;

 private:
  void restart() { lane_.start(controls.faults().plan(), 1); }
  fault::Direction lane_;
  std::vector<std::byte> bytes_;
  base::Frame frame_;
};

constexpr std::array<std::uint8_t, 4> kOther{192, 0, 2, 9};
constexpr std::uint8_t kAcknowledge = 0x11, kDatagram = 0x64;

TEST(FaultRules, ARuleIsForItsPeer) {
  Lane lane("drop=1,peer=192.0.2.9");
  EXPECT_TRUE(lane.drops({.to = kOther}));
  EXPECT_FALSE(lane.drops());
  Lane arriving("drop=1,peer=192.0.2.9", pcap::Direction::kInbound);
  EXPECT_FALSE(arriving.drops({.to = kOther})) << "it comes from 192.0.2.1";
  Lane from("drop=1,peer=192.0.2.1", pcap::Direction::kInbound);
  EXPECT_TRUE(from.drops({.to = kOther}));
}

TEST(FaultRules, ARuleIsForItsOperationsAndItsQp) {
  Lane acks("drop=1,op=ACK");
  EXPECT_TRUE(acks.drops({.opcode = kAcknowledge}));
  EXPECT_FALSE(acks.drops());
  Lane one("drop=1,qp=0x77,op=SEND|ACK");
  EXPECT_TRUE(one.drops({}, 0x77));
  EXPECT_FALSE(one.drops({}, 0x78));
}

TEST(FaultRules, AMessageOfConnectionManagementHasItsName) {
  const char* const names[] = {"REQ",  "MRA",      "REJ",      "REP", "RTU", "DREQ",
                               "DREP", "SIDR_REQ", "SIDR_REP", "LAP", "APR"};
  constexpr std::uint16_t kFirst = 0x0010;
  for (std::uint16_t i = 0; i < std::size(names); ++i) {
    const RoceFrame message{
        .dest_qpn = 1, .opcode = kDatagram, .payload = 256, .attribute = static_cast<std::uint16_t>(kFirst + i)};
    for (const char* const name : names) {
      EXPECT_EQ(Lane(std::string("drop=1,op=") + name).drops(message), name == names[i]) << name << " " << i;
    }
    EXPECT_TRUE(Lane("drop=1,op=CM").drops(message)) << i;
    EXPECT_FALSE(Lane("drop=1,op=SEND|ACK|OTHER").drops(message)) << i;
    RoceFrame elsewhere = message;
    elsewhere.dest_qpn = 2;
    EXPECT_FALSE(Lane("drop=1,op=CM").drops(elsewhere)) << i;
  }
  for (const RoceFrame& other :
       {RoceFrame{.dest_qpn = 1, .opcode = kDatagram, .payload = 4},
        RoceFrame{.dest_qpn = 1, .opcode = kDatagram, .payload = 256},
        RoceFrame{.dest_qpn = 1, .opcode = kDatagram, .payload = 256, .attribute = 0x1b},
        RoceFrame{.dest_qpn = 1, .opcode = kDatagram, .payload = 256, .attribute = 0x01}}) {
    EXPECT_TRUE(Lane("drop=1,op=CM").drops(other));
    EXPECT_FALSE(Lane("drop=1,op=REQ|MRA|REJ|REP|RTU|DREQ|DREP|SIDR_REQ|SIDR_REP|LAP|APR").drops(other));
  }
}

/// A frame after a rule, if that changed it. `damaged`: its ICRC is not right.
std::optional<std::vector<std::byte>> refused(const std::string& rule, const RoceFrame& of, bool damaged = false) {
  std::vector<std::byte> bytes = roce(of);
  base::Frame frame{};
  frame.data = bytes.data();
  frame.length = static_cast<std::uint32_t>(bytes.size());
  if (!damaged) frame.flags = base::kIcrcGood;
  const Verdict verdict = Lane(rule).judge(of);
  if (verdict.nak_syndrome == 0 || !fault::Direction::refuse(frame, verdict)) return std::nullopt;
  return bytes;
}

TEST(FaultRules, AnAcknowledgeBecomesANakThatIsValid) {
  const struct {
    std::string rule;
    std::uint8_t syndrome;
  } cases[] = {{"nak=1:RNR", 0x21},
               {"nak=1:SEQUENCE", 0x60},
               {"nak=1:INVALID_REQUEST", 0x61},
               {"nak=1:REMOTE_ACCESS", 0x62},
               {"nak=1:REMOTE_OPERATIONAL", 0x63}};
  for (const auto& each : cases) {
    const auto bytes = refused(each.rule, {.psn = 7, .opcode = kAcknowledge, .payload = 0, .syndrome = 0x1f});
    ASSERT_TRUE(bytes) << each.rule;
    wire::RxPacket packet;
    ASSERT_EQ(wire::parse(*bytes, {.check_ip_checksum = false}, packet), wire::ParseVerdict::kOk) << each.rule;
    const wire::Aeth aeth = wire::Aeth::parse(packet.bth_start + packet.info->aeth);
    EXPECT_EQ(aeth.syndrome, each.syndrome);
    EXPECT_EQ(aeth.msn, Msn(3));
    EXPECT_EQ(packet.bth.psn, Psn(7));
  }
}

TEST(FaultRules, OnlyPositiveAcknowledgesBecomeNaks) {
  EXPECT_FALSE(refused("nak=1:RNR", {}));
  EXPECT_FALSE(refused("nak=1:RNR", {.opcode = kAcknowledge, .payload = 0, .syndrome = 0x60}));
  EXPECT_FALSE(refused("nak=1:RNR", {.opcode = kAcknowledge, .payload = 0, .syndrome = 0x21}));
  EXPECT_FALSE(refused("nak=0:RNR; dup=1", {.opcode = kAcknowledge, .payload = 0}));
  EXPECT_FALSE(refused("nak=1:RNR", {.opcode = kAcknowledge, .payload = 0}, true)) << "a damaged frame stays one";
}

TEST(FaultRules, TruncatedFramesAreLeftAlone) {
  const Verdict verdict = Lane("nak=1:RNR").judge({.opcode = kAcknowledge, .payload = 0});
  for (const RoceFrame& of : {RoceFrame{.opcode = kAcknowledge, .payload = 0},
                              RoceFrame{.dest_qpn = 1, .opcode = kDatagram, .payload = 64, .attribute = 0x10}}) {
    const std::vector<std::byte> whole = roce(of);
    for (std::size_t length = 0; length < whole.size(); ++length) {
      std::vector<std::byte> bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
      base::Frame frame{};
      frame.data = bytes.data();
      frame.length = static_cast<std::uint32_t>(length);
      frame.flags = base::kIcrcGood;
      EXPECT_FALSE(fault::Direction::refuse(frame, verdict)) << length;
      pcap::Filter filter;
      ASSERT_EQ(pcap::Filter::parse("op=REQ", filter), "");
      constexpr std::size_t kAttributeEnd = 14 + 20 + 8 + 12 + 8 + 18;
      EXPECT_EQ(filter.matches(frame, pcap::Direction::kInbound), of.attribute != 0 && length >= kAttributeEnd)
          << length;
    }
  }
}

TEST(FaultRules, SeveralApplyInTheirOrderAndADropIsTheEnd) {
  Lane lane("name=cut,drop=1,peer=192.0.2.9; dup=1; corrupt=1,op=ACK");
  EXPECT_TRUE(lane.drops({.to = kOther}));
  const Verdict plain = lane.judge(), ack = lane.judge({.opcode = kAcknowledge});
  EXPECT_TRUE(plain.duplicate && !plain.corrupt && !plain.drop);
  EXPECT_TRUE(ack.duplicate && ack.corrupt && !ack.drop);
  EXPECT_EQ(lane.shown("fault_matched_by_cut"), "1");
  EXPECT_EQ(lane.shown("fault_matched_by_2"), "2");
  EXPECT_EQ(lane.shown("fault_matched_by_3"), "1");
  EXPECT_EQ(lane.shown("fault_dropped"), "1");
  EXPECT_EQ(lane.shown("fault_duplicated"), "2");
}

TEST(FaultRules, ADirectionIsForOneSide) {
  EXPECT_TRUE(Lane("drop=1,direction=tx").drops());
  EXPECT_FALSE(Lane("drop=1,direction=rx").drops());
  EXPECT_FALSE(Lane("drop=1,direction=tx", pcap::Direction::kInbound).drops());
}

TEST(FaultRules, AddingAndRemovingLeavesTheDrawsOfOthers) {
  const std::string expected = Lane("name=a,drop=0.2,seed=3").losses(300);
  Lane lane("name=a,drop=0.2,seed=3");
  std::string found = lane.losses(100);
  lane.add("name=b,dup=0.5,seed=4");
  found += lane.losses(100);
  lane.remove("b");
  found += lane.losses(100);
  EXPECT_EQ(found, expected);
  EXPECT_NE(expected.find('x'), std::string::npos);
  EXPECT_EQ(lane.shown("fault_matched_by_a"), "300");
}

TEST(FaultRules, ABurstHasItsMeanLength) {
  const std::string losses = Lane("drop=0.01,burst=10").losses(200'000);
  const auto lost = static_cast<double>(std::count(losses.begin(), losses.end(), 'x'));
  double bursts = 0;
  for (std::size_t at = 0; (at = losses.find(".x", at)) != std::string::npos; ++at) ++bursts;
  EXPECT_NEAR(lost / bursts, 10, 1);
  EXPECT_NEAR(bursts / (200'000 - lost), 0.01, 0.002);
  EXPECT_EQ(Lane("drop=0.1,burst=1").losses(500), Lane("drop=0.1").losses(500));
}

TEST(FaultRules, ARateLetsFramesPassOneAfterTheOther) {
  Lane lane("rate=8M");  // a byte in a microsecond
  const Verdict first = lane.judge();
  const Nanos each = Nanos{lane.length()} * kMicrosecond;
  EXPECT_EQ(first.hold_until, lane.now + each);
  EXPECT_EQ(lane.judge().hold_until, lane.now + 2 * each);
  lane.now += kSecond;
  EXPECT_EQ(lane.judge().hold_until, lane.now + each) << "a pause saves nothing up";
}

TEST(FaultRules, ARateLosesWhatFindsTheQueueFull) {
  Lane lane("rate=8M");
  std::size_t held = 0;
  for (Verdict verdict = lane.judge(); !verdict.drop; verdict = lane.judge()) {
    lane.hold(verdict);
    ASSERT_LE(++held, fault::Direction::kMaxWaiting);
  }
  EXPECT_EQ(held, fault::Direction::kMaxWaiting);
  EXPECT_EQ(lane.shown("fault_dropped"), "1");
}

TEST(FaultRules, ADelayLiesBetweenItsTimes) {
  Lane lane("delay=1:200us-300us");
  Nanos least = kNever, most = 0;
  for (int i = 0; i < 1000; ++i) {
    const Nanos waits = lane.judge().hold_until - lane.now;
    least = std::min(least, waits), most = std::max(most, waits);
  }
  EXPECT_GE(least, 200 * kMicrosecond);
  EXPECT_LT(least, 202 * kMicrosecond);
  EXPECT_LE(most, 300 * kMicrosecond);
  EXPECT_GT(most, 298 * kMicrosecond);
}

TEST(FaultRules, ARateAndADelayAddUp) {
  Lane lane("rate=8M; delay=1:1ms");
  const Verdict verdict = lane.judge();
  EXPECT_EQ(verdict.hold_until, lane.now + Nanos{lane.length()} * kMicrosecond + kMillisecond);
}

TEST(FaultRules, WhatWaitsForARateOrADelayIsNotReordered) {
  for (const char* const rules :
       {"reorder=1; delay=1:1s", "delay=1:1s; reorder=1", "reorder=1,rate=8M", "rate=8M; reorder=1"}) {
    Lane lane(rules);
    const Verdict verdict = lane.judge();
    EXPECT_EQ(verdict.overtaken_by, Verdict::kNoOthers) << rules;
    EXPECT_NE(verdict.hold_until, lane.now + fault::Direction::kMaxOvertake) << rules;
  }
}

TEST(FaultRules, NothingIsHeldForARuleThatIsGone) {
  Lane lane("name=slow,rate=1k; name=other,dup=0.1");
  lane.hold(lane.judge());
  lane.release();
  EXPECT_EQ(lane.ready(), 0u);
  lane.add("name=more,dup=0.1");
  lane.release();
  EXPECT_EQ(lane.ready(), 0u) << "the rule is still there";
  lane.remove("slow");
  lane.release();
  EXPECT_EQ(lane.ready(), 1u);
}

TEST(FaultPlan, TextIsWhatItWasParsedFrom) {
  for (const char* const text :
       {"name=cut,qp=0x12,peer=2001:db8::7,op=SEND|ACK,drop=0.5,burst=4,seed=9,direction=tx",
        "delay=0.5:200000ns-300000ns,nak=0.01:SEQUENCE,rate=100000000,seed=1,direction=both",
        "op=REQ|SIDR_REP,drop=1,seed=1,direction=both",
        "drop=0.1,seed=1,direction=rx; name=b,dup=0.2,seed=2,direction=both"}) {
    Plan plan;
    EXPECT_EQ(Plan::parse(text, plan), "");
    EXPECT_EQ(plan.text(), text);
  }
}

TEST(FaultPlan, SaysWhatIsWrongWithARule) {
  Plan plan;
  for (const char* const bad : {";",
                                "drop=1;;drop=1",
                                "peer=192.0.2.7",
                                "seed=7",
                                "name=a",
                                "drop=1,peer=192.0.2",
                                "drop=1,op=SENDS",
                                "drop=1,qp=-1",
                                "drop=1,snaplen=96",
                                "drop=1,burst=0",
                                "drop=1,burst=x",
                                "rate=0",
                                "rate=1",
                                "nak=1",
                                "nak=1:",
                                "nak=1:BUSY",
                                "nak=2:RNR",
                                "nak=1:RNR,op=SEND",
                                "rate=9T",
                                "rate=2000G",
                                "delay=1:3us-2us",
                                "delay=1:3us-",
                                "drop=1,name=a b",
                                "drop=1,name=",
                                "off;drop=1",
                                "drop=1,name=a; dup=1,name=a",
                                "drop=1;off",
                                "drop=1,name=2"}) {
    EXPECT_NE(Plan::parse(bad, plan), "") << bad;
  }
  std::string many = "drop=1";
  for (std::size_t i = 1; i < Plan::kMost; ++i) many += ";drop=1";
  EXPECT_EQ(Plan::parse(many, plan), "");
  EXPECT_NE(Plan::parse(many + ";drop=1", plan), "");
}

TEST(FaultPlan, ARuleThatIsNotThereCantBeRemovedAndANameIsGivenOnce) {
  packet::Controls controls("test");
  EXPECT_EQ(controls.add_fault("drop=1,name=cut"), "");
  EXPECT_NE(controls.add_fault("dup=1,name=cut").find("cut"), std::string::npos);
  EXPECT_NE(controls.add_fault("off"), "");
  EXPECT_NE(controls.remove_fault("cat").find("cat"), std::string::npos);
  EXPECT_NE(controls.remove_fault(""), "");
  EXPECT_EQ(controls.faults().plan().rules.size(), 1u);
  EXPECT_EQ(controls.remove_fault("cut"), "");
  EXPECT_EQ(controls.faults().plan().text(), "off");
}

}  // namespace
}  // namespace uroce::packet_test
