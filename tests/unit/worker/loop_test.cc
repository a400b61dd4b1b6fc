// Two workers joined in memory, turned by WorkerLoop::step() alone: virtual time, no thread.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "allocations.h"
#include "host.h"

namespace uroce::worker::testing {
namespace {

class WorkerLoopTest : public ::testing::Test {
 protected:
  WorkerLoopTest() {
    a.device.connect(b.device);
    b.device.connect(a.device);
    a.connect(b, now);
    b.connect(a, now);
  }
  /// One duty cycle of each worker.
  void step() {
    now += kMicrosecond;
    a.loop.step(now);
    b.loop.step(now);
  }
  /// Writes the first `bytes` of a's memory to b's. False: it did not complete within a second of virtual time.
  bool write(std::uint32_t bytes) {
    a.rc.post_write(7, a.sge(0, bytes), Host::kIova, b.key.value);
    a.ring();
    for (const Nanos end = now + kSecond; now < end;) {
      step();
      if (a.poll(a.qpn) == 1) return true;
    }
    return false;
  }

  Nanos now = kSecond;
  Host a{1}, b{2};
};

TEST_F(WorkerLoopTest, AWriteGoesFromMemoryToMemoryByStepsAlone) {
  for (std::size_t i = 0; i < Host::kMemory; ++i) a.memory[i] = static_cast<std::byte>(i * 7 + (i >> 8));
  ASSERT_TRUE(write(65536 + 5));
  EXPECT_TRUE(std::equal(a.memory.begin(), a.memory.begin() + 65536 + 5, b.memory.begin()));
  EXPECT_EQ(b.memory[65536 + 5], std::byte{0});
  EXPECT_EQ(b.core.counters().parse[static_cast<std::size_t>(wire::ParseVerdict::kOk)], 17u);
  EXPECT_EQ(a.core.port()->counters().tx_packets, a.device.counters().tx_packets);
}

TEST_F(WorkerLoopTest, WorkRequestsAreMeasuredWhileThatIsOn) {
  const auto writes = [&] {
    return a.core.transport().latencies()[static_cast<std::size_t>(abi::OperationKind::kWrite)].count();
  };
  ASSERT_TRUE(write(64));
  EXPECT_EQ(writes(), 0u);
  a.core.measure_latency(true);
  ASSERT_TRUE(write(64));
  ASSERT_TRUE(write(64));
  EXPECT_EQ(writes(), 2u);
  a.core.measure_latency(false);
  ASSERT_TRUE(write(64));
  EXPECT_EQ(writes(), 2u);
  a.core.measure_latency(true);
  ASSERT_TRUE(write(64));
  EXPECT_EQ(writes(), 1u);
  a.core.measure_latency(true);
  EXPECT_EQ(writes(), 0u) << "it begins from none, although it was on";
}

// A client may say anything: at most the time since the last look at its doorbells is added.
TEST_F(WorkerLoopTest, TheTimeBeforeADoorbellWasSeenCountsIfItCanBe) {
  a.core.measure_latency(true);
  const auto latency = [&](Nanos said) {
    const auto& writes = a.core.transport().latencies()[static_cast<std::size_t>(abi::OperationKind::kWrite)];
    step();
    const Nanos before = writes.sum();
    a.say_rung(said == 0 ? now + 400 : said);
    EXPECT_TRUE(write(64));
    return writes.sum() - before;
  };
  const Nanos seen = latency(1);
  EXPECT_GT(seen, 0u);
  for (const Nanos other : {now - kMicrosecond, now, now + kSecond, kNever})
    EXPECT_EQ(latency(other), seen) << other;
  EXPECT_EQ(latency(0), seen + 600);
}

TEST_F(WorkerLoopTest, ClientsStampDoorbellsOnlyWhileThatIsMeasured) {
  EXPECT_FALSE(a.is_asked_for_stamps());
  a.core.measure_latency(true);
  EXPECT_TRUE(a.is_asked_for_stamps());
  a.core.announce_sleep();
  EXPECT_TRUE(a.is_asked_for_stamps());
  a.core.end_sleep();
  EXPECT_TRUE(a.is_asked_for_stamps());
  a.core.measure_latency(false);
  EXPECT_FALSE(a.is_asked_for_stamps());
}

// A client may say anything: at most the length of the sleep is recorded.
TEST_F(WorkerLoopTest, AWakeUpIsMeasuredIfItBelongsToTheSleep) {
  const auto wake_ups = [&] { return a.core.latency().wake_up.count(); };
  const Nanos slept = 5 * kSecond, resumed = 6 * kSecond;
  a.say_woken(resumed - 70);
  a.core.note_wake_up(slept, resumed);
  EXPECT_EQ(wake_ups(), 0u) << "off";
  a.core.measure_latency(true);
  for (const Nanos other : {Nanos{0}, slept - 1, slept, resumed + 1, kNever}) {
    a.say_woken(other);
    a.core.note_wake_up(slept, resumed);
  }
  EXPECT_EQ(wake_ups(), 0u);
  a.say_woken(resumed - 70);
  a.core.note_wake_up(slept, resumed);
  EXPECT_EQ(wake_ups(), 1u);
  EXPECT_EQ(a.core.latency().wake_up.sum(), 70u);
}

TEST_F(WorkerLoopTest, TheSameStepsGiveTheSameRun) {
  const auto run = [] {
    Host first(1), second(2);
    first.device.connect(second.device);
    second.device.connect(first.device);
    first.connect(second, kSecond);
    second.connect(first, kSecond);
    first.rc.post_write(7, first.sge(0, 300'000), Host::kIova, second.key.value);
    first.ring();
    std::vector<std::uint64_t> sent;
    for (Nanos now = kSecond; now < kSecond + 200 * kMicrosecond; now += kMicrosecond) {
      first.loop.step(now);
      second.loop.step(now);
      sent.push_back(first.device.counters().tx_packets);
      sent.push_back(second.device.counters().tx_packets);
    }
    EXPECT_EQ(first.poll(first.qpn), 1u);
    return sent;
  };
  EXPECT_EQ(run(), run());
}

TEST_F(WorkerLoopTest, StepsThatMeasureAllocateNoMemory) {
  a.core.measure_latency(true);
  ASSERT_TRUE(write(64));
  const std::size_t before = allocations();
  ASSERT_TRUE(write(64));
  EXPECT_EQ(allocations(), before);
}

TEST_F(WorkerLoopTest, StepsAllocateNoMemoryEvenWithASnifferAndOffloadedChecksums) {
  a.add_sniffer();
  EXPECT_EQ(a.device.filter(), net::RxFilter::kPromiscuous);
  std::size_t sniffed = 0;
  const auto round = [&] {
    while (a.sniffer.post_receive(1, a.sge(Host::kMemory / 2, 8192))) {
    }
    a.rc.post_write(7, a.sge(0, 65536), Host::kIova, b.key.value);
    a.ring();
    const std::size_t before = allocations();
    for (int i = 0; i < 100; ++i) step();
    const std::size_t made = allocations() - before;
    sniffed += a.poll(Qpn{0x30});
    return made;
  };
  round();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(round(), 0u) << i;
  EXPECT_GE(sniffed, 21u * 17);  // 16 packets of each WRITE and at least one acknowledge
  // The sniffer sees the header as the port sends it.
  const std::byte* const ip = a.memory.data() + Host::kMemory / 2 + 14;
  EXPECT_EQ(wire::load16(ip + 10), wire::Ipv4Header::parse(ip).right_checksum());
}

}  // namespace
}  // namespace uroce::worker::testing
