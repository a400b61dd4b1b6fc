// What the injector does to a stream of numbered frames, and what it does not.
#include <map>

#include "drivers/packet/controls.h"
#include "drivers/packet/fault/injector.h"
#include "drivers/packet/loopback/local.h"
#include "drivers/packet/switch/port.h"
#include "tests/unit/packet/conformance.h"

namespace uroce::packet_test {
namespace {

constexpr std::uint32_t kFrames = 20'000, kLength = 100;

struct Outcome {
  std::map<std::uint32_t, int> times;  // by number: how often it arrived intact
  int damaged = 0, late = 0, total = 0;
  double lost() const { return 1.0 - static_cast<double>(times.size()) / kFrames; }
};

class FaultTest : public ::testing::Test {
 protected:
  Outcome run(const std::string& settings) {
    EXPECT_EQ(controls_.set_fault(settings), "");
    Outcome outcome;
    std::uint32_t next = 0, highest = 0;
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (int idle = 0; idle < 2000 && std::chrono::steady_clock::now() < give_up;) {
      if (next < kFrames) next += send(next);
      base::Frame in[64];
      const std::size_t got = device_.receive(in);
      idle = got == 0 && next == kFrames ? idle + 1 : 0;
      if (got == 0 && next == kFrames) std::this_thread::sleep_for(std::chrono::microseconds(5));
      for (const base::Frame& frame : std::span(in).first(got)) {
        ++outcome.total;
        if (!intact(frame, kLength)) {
          ++outcome.damaged;
          continue;
        }
        const std::uint32_t number = number_of(frame);
        outcome.late += number < highest ? 1 : 0;
        highest = std::max(highest, number);
        ++outcome.times[number];
      }
      device_.release(std::span(in).first(got));
    }
    return outcome;
  }

  std::uint32_t send(std::uint32_t first) {
    base::Frame out[32];
    const std::size_t have = device_.allocate(std::span(out).first(std::min(32u, kFrames - first)));
    for (std::size_t i = 0; i < have; ++i) fill(out[i], kMac, kLength, first + static_cast<std::uint32_t>(i));
    const std::size_t taken = device_.transmit(std::span(out).first(have));
    device_.discard(std::span(out).subspan(taken, have - taken));
    return static_cast<std::uint32_t>(taken);
  }

  std::size_t free_buffers() { return lan_.free_buffers(); }

  static constexpr wire::Mac kMac{0x02, 0, 0, 0, 0, 1};
  static constexpr std::uint32_t kBuffers = 2048;
  ethernet::Switch lan_{9000, kBuffers};
  packet::Controls controls_{"test"};
  fault::Injector<loopback::LoopbackDevice<ethernet::SwitchPort>> device_{controls_.faults(), 0u, lan_, kMac};
};

TEST_F(FaultTest, off_changes_nothing) {
  const Outcome outcome = run("off");
  EXPECT_EQ(outcome.times.size(), kFrames);
  EXPECT_EQ(outcome.total, static_cast<int>(kFrames));
  EXPECT_EQ(outcome.damaged + outcome.late, 0);
}

TEST_F(FaultTest, drops_the_share_asked_for) {
  EXPECT_NEAR(run("drop=0.1,direction=rx").lost(), 0.1, 0.01);
  EXPECT_EQ(free_buffers(), kBuffers) << "no buffer is lost with its frame";
}

TEST_F(FaultTest, drops_in_both_directions_add_up) {
  EXPECT_NEAR(run("drop=0.1,direction=both").lost(), 0.19, 0.015);
}

TEST_F(FaultTest, duplicates_arrive_twice_and_their_buffers_come_back) {
  const Outcome outcome = run("dup=0.2,direction=tx");
  EXPECT_EQ(outcome.times.size(), kFrames);
  EXPECT_NEAR(outcome.total / static_cast<double>(kFrames), 1.2, 0.02);
  run("dup=0.2,direction=rx");
  EXPECT_EQ(free_buffers(), kBuffers);
}

TEST_F(FaultTest, reorders_without_losing) {
  const Outcome outcome = run("reorder=0.05,direction=rx");
  EXPECT_EQ(outcome.times.size(), kFrames);
  EXPECT_EQ(outcome.total, static_cast<int>(kFrames));
  EXPECT_GT(outcome.late, 500);
  EXPECT_EQ(free_buffers(), kBuffers);
}

TEST_F(FaultTest, delays_without_losing) {
  const Outcome outcome = run("delay=0.05:300us,direction=tx");
  EXPECT_EQ(outcome.times.size(), kFrames);
  EXPECT_GT(outcome.late, 100);
}

TEST_F(FaultTest, corrupts_one_bit) {
  const Outcome outcome = run("corrupt=0.1,direction=rx");
  EXPECT_EQ(outcome.total, static_cast<int>(kFrames));
  // A flipped bit may hit the number or the Ethernet header, which the check does not cover.
  EXPECT_NEAR(outcome.damaged / static_cast<double>(kFrames), 0.1, 0.03);
}

TEST_F(FaultTest, the_same_seed_hits_the_same_frames_and_another_hits_others) {
  const Outcome first = run("drop=0.1,seed=5,direction=rx"), again = run("drop=0.1,seed=5,direction=rx");
  EXPECT_EQ(first.times, again.times);
  EXPECT_NE(first.times, run("drop=0.1,seed=6,direction=rx").times);
}

TEST_F(FaultTest, switched_off_it_lets_go_what_it_holds) {
  EXPECT_EQ(controls_.set_fault("delay=1:10s"), "");
  ASSERT_GT(send(0), 0u);
  EXPECT_FALSE(device_.arm_wake()) << "frames wait inside";
  const Outcome outcome = run("off");
  EXPECT_EQ(outcome.times.size(), kFrames);
  EXPECT_TRUE(device_.arm_wake());
}

TEST(FaultPlan, says_what_is_wrong_with_a_setting) {
  fault::Plan plan;
  for (const char* bad : {"", "drop", "drop=2", "drop=-1", "drop=nan", "dorp=0.1", "delay=0.1:5", "delay=0.1:5h",
                          "seed=x", "direction=up", "drop=0.1,,"}) {
    EXPECT_NE(fault::Plan::parse(bad, plan), "") << bad;
  }
  EXPECT_NE(fault::Plan::parse("dorp=0.1", plan).find("dorp=0.1"), std::string::npos);
  EXPECT_EQ(fault::Plan::parse("drop=0.01,dup=0.01,reorder=0.05,delay=0.01:200us,corrupt=0.001,seed=7,direction=rx",
                               plan),
            "");
  ASSERT_EQ(plan.rules.size(), 1u);
  EXPECT_EQ(plan.rules[0].delay_by, 200 * kMicrosecond);
  EXPECT_FALSE(plan.rules[0].transmit);
  fault::Plan again;
  EXPECT_EQ(fault::Plan::parse(plan.text(), again), "");
  EXPECT_EQ(again.text(), plan.text());
}

}  // namespace
}  // namespace uroce::packet_test
