// What urocectl trace reads: which frames come through the pipe, with which marks, and how a stream ends.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "drivers/packet/controls.h"
#include "drivers/packet/fault/injector.h"
#include "drivers/packet/fault/marks.h"
#include "drivers/packet/loopback/local.h"
#include "drivers/packet/pcap/capture.h"
#include "drivers/packet/pcap/filter.h"
#include "drivers/packet/pcap/remarks.h"
#include "drivers/packet/switch/port.h"
#include "tests/unit/packet/conformance.h"
#include "tests/unit/packet/roce_frame.h"

namespace uroce::packet_test {
namespace {

struct Captured {
  pcap::Record record;
  std::vector<std::byte> bytes;
};

/// All records up to the end of a stream; the last one is its end, if it has one.
std::vector<Captured> read_all(int reader) {
  std::vector<std::byte> bytes(std::size_t{1} << 26);
  std::size_t have = 0;
  for (ssize_t n = 1; n > 0 && have < bytes.size(); have += static_cast<std::size_t>(std::max<ssize_t>(n, 0))) {
    n = ::read(reader, bytes.data() + have, bytes.size() - have);
  }
  ::close(reader);
  std::vector<Captured> all;
  for (std::size_t at = 0; at + sizeof(pcap::Record) <= have;) {
    Captured& next = all.emplace_back();
    std::memcpy(&next.record, &bytes[at], sizeof next.record);
    at += sizeof next.record;
    next.bytes.assign(&bytes[at], &bytes[at] + next.record.kept);
    at += next.record.kept;
  }
  return all;
}

class TraceTest : public ::testing::Test {
 protected:
  int start(std::string_view filter) {
    int reader = -1;
    EXPECT_EQ(controls_.start_capture(filter, reader), "");
    return reader;
  }
  /// Sends it, and takes what arrives of it.
  void pass(const std::vector<std::byte>& bytes, std::uint32_t sender = 0) {
    base::Frame frame;
    ASSERT_EQ(device_.allocate(std::span(&frame, 1)), 1u);
    std::memcpy(frame.data, bytes.data(), bytes.size());
    frame.length = static_cast<std::uint32_t>(bytes.size());
    frame.flags = 0;
    frame.sender = sender;
    ASSERT_EQ(device_.transmit(std::span(&frame, 1)), 1u);
    base::Frame in[8];
    const std::size_t got = device_.receive(in);
    device_.release(std::span(in).first(got));
  }

  static constexpr wire::Mac kMac{0x02, 0, 0, 0, 0, 1};
  ethernet::Switch lan_{9000, 2048};
  packet::Controls controls_{"uroce7"};
  pcap::Capture<fault::Injector<loopback::LoopbackDevice<ethernet::SwitchPort>>> device_{
      controls_.recorder(), 0u, controls_.faults(), 0u, lan_, kMac};
};

TEST_F(TraceTest, AStreamHasEveryFrameInBothDirectionsAndAnEnd) {
  const int reader = start("");
  for (std::uint32_t psn = 0; psn < 100; ++psn) pass(roce({.psn = psn}), 0x01'000034);
  ASSERT_EQ(controls_.stop_capture(), "");
  const auto all = read_all(reader);
  ASSERT_EQ(all.size(), 201u);
  EXPECT_EQ(all[0].record.direction, pcap::Direction::kOutbound);
  EXPECT_EQ(all[0].record.qpn, 0x34u) << "without the number of the device";
  EXPECT_EQ(all[1].record.direction, pcap::Direction::kInbound);
  EXPECT_EQ(all[1].bytes, roce({.psn = 0}));
  EXPECT_EQ(all[200].record.end, 1u);
  EXPECT_EQ(all[200].record.lost, 0u);
  EXPECT_NE(controls_.stop_capture(), "");
}

TEST_F(TraceTest, AFilterSelectsByQpPeerAndOperation) {
  const auto count = [&](std::string_view filter) {
    const int reader = start(filter);
    pass(roce({.dest_qpn = 0x12, .opcode = 0x0c}), 0x34);                     // READ request
    pass(roce({.dest_qpn = 0x34, .opcode = 0x10}), 0x12);                     // READ response
    pass(roce({.dest_qpn = 0x12, .opcode = 0x11, .to = {198, 51, 100, 7}}));  // ACK
    pass(roce({.dest_qpn = 1, .opcode = 0x64}));                              // CM
    pass(std::vector<std::byte>(60, std::byte{0x88}));
    controls_.stop_capture();
    return read_all(reader).size() - 1;
  };
  EXPECT_EQ(count(""), 9u) << "the last one is for nobody here";
  EXPECT_EQ(count("op=READ"), 4u);
  EXPECT_EQ(count("op=READ|CM"), 6u);
  EXPECT_EQ(count("op=OTHER"), 1u);
  EXPECT_EQ(count("qp=0x12"), 3u) << "arrived twice, sent once";
  EXPECT_EQ(count("qp=18,op=ACK"), 1u);
  EXPECT_EQ(count("peer=198.51.100.7"), 1u) << "sent there";
  EXPECT_EQ(count("peer=2001:db8::1"), 0u);
}

TEST(TraceFilter, AWrongOneIsRefusedWithWhatIsAllowed) {
  pcap::Filter filter;
  for (const char* text : {"qp=", "qp=0x1000000", "qp=12x", "peer=host", "op=", "op=SEND|", "op=NOP", "snaplen=63",
                           "snaplen=262145", "port=1", "qp"}) {
    const std::string problem = pcap::Filter::parse(text, filter);
    EXPECT_NE(problem.find(text), std::string::npos) << problem;
    EXPECT_NE(problem.find("it must be"), std::string::npos) << problem;
  }
  EXPECT_TRUE(filter.all()) << "nothing of a wrong one is kept";
}

TEST_F(TraceTest, SnaplenKeepsTheFirstBytes) {
  const int reader = start("snaplen=64");
  pass(roce({.payload = 1000}));
  controls_.stop_capture();
  const auto all = read_all(reader);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].record.kept, 64u);
  EXPECT_EQ(all[0].record.length, roce({.payload = 1000}).size());
}

TEST_F(TraceTest, FramesThatTheInjectorMeetsAreMarked) {
  const auto marks = [&](const char* plan) {
    EXPECT_EQ(controls_.set_fault(plan), "");
    const int reader = start("");
    pass(roce({}));
    controls_.stop_capture();
    std::vector<std::pair<pcap::Direction, std::uint32_t>> out;
    for (const Captured& each : read_all(reader)) {
      if (each.record.end == 0) out.emplace_back(each.record.direction, each.record.marks);
    }
    if (out.empty()) out.emplace_back(pcap::Direction::kInbound, ~0u);  // equal to none of those below
    return out;
  };
  using enum pcap::Direction;
  using Marks = std::vector<std::pair<pcap::Direction, std::uint32_t>>;
  EXPECT_EQ(marks("drop=1,direction=tx"), (Marks{{kOutbound, fault::kMarkDropped}}));
  EXPECT_EQ(marks("drop=1,direction=rx"), (Marks{{kOutbound, 0}, {kInbound, fault::kMarkDropped}}));
  EXPECT_EQ(marks("corrupt=1,direction=tx").front(),
            std::make_pair(kOutbound, std::uint32_t{fault::kMarkCorrupted}));
  EXPECT_EQ(marks("corrupt=1,direction=rx").back(), std::make_pair(kInbound, std::uint32_t{fault::kMarkCorrupted}));
  EXPECT_EQ(marks("dup=1,direction=rx").back(), std::make_pair(kInbound, std::uint32_t{fault::kMarkDuplicated}));
  EXPECT_EQ(marks("off"), (Marks{{kOutbound, 0}, {kInbound, 0}}));
}

TEST_F(TraceTest, AReaderThatReadsNothingCostsFramesThatAreCountedAndNobodyWaits) {
  const int reader = start("");
  const auto frame = roce({.payload = 4000});
  for (int i = 0; i < 5000; ++i) pass(frame);  // 40 MB
  ASSERT_EQ(controls_.stop_capture(), "") << "does not wait for the reader";
  int another = -1;
  EXPECT_NE(controls_.start_capture("", another).find("is running"), std::string::npos);
  const auto all = read_all(reader);
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.back().record.end, 1u);
  EXPECT_GT(all.back().record.lost, 0u);
  EXPECT_EQ(all.back().record.lost + all.size() - 1, 10'000u);
}

TEST_F(TraceTest, TheCaptureEndsWithItsReader) {
  ::close(start(""));
  std::string problem = "running";
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  int reader = -1;
  while (!problem.empty() && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    problem = controls_.start_capture("", reader);
  }
  ASSERT_EQ(problem, "");
  pass(roce({}));
  controls_.stop_capture();
  EXPECT_EQ(read_all(reader).size(), 3u);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__clang__)  // they need address space
TEST(Recorder, WithoutMemoryItRefusesACaptureAndMakesOneLater) {
  pcap::Recorder recorder("uroce7");
  recorder.expect(63);  // 512 MiB
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  const rlimit low{pages * static_cast<std::uint64_t>(::getpagesize()) + (64u << 20), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &low), 0);
  int reader = -1;
  const std::string problem = recorder.start({}, "", reader);
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_NE(problem.find("no memory or no thread for the capture"), std::string::npos) << problem;
  EXPECT_EQ(reader, -1);
  EXPECT_EQ(recorder.tap(0), nullptr);
  ASSERT_EQ(recorder.start({}, "", reader), "");
  EXPECT_EQ(recorder.stop(), "");
  EXPECT_EQ(read_all(reader).size(), 1u);
}
#endif

TEST_F(TraceTest, StartsAndStopsUnderTraffic) {
  std::atomic<bool> done{false};
  std::thread controller([&] {
    for (int i = 0; i < 50; ++i) {
      int reader = -1;
      if (controls_.start_capture(i % 2 == 0 ? "" : "op=READ,snaplen=96", reader).empty()) {
        controls_.stop_capture();
        read_all(reader);
      }
    }
    done = true;
  });
  while (!done) pass(roce({.opcode = 0x0c}), 0x34);
  controller.join();
}

// ---------------------------------------------------------------- remarks

class RemarksTest : public ::testing::Test {
 protected:
  std::string of(const RoceFrame& frame, pcap::Direction direction = pcap::Direction::kOutbound,
                 std::uint32_t marks = 0) {
    pcap::Record record;
    record.direction = direction;
    record.qpn = 0x34;
    record.marks = marks;
    return remarks_.about(record, roce(frame));
  }
  pcap::Remarks remarks_{
      [](std::uint32_t qpn) { return qpn == 0x34 ? std::string("ping (pid 7)") : std::string(); }};
};

TEST_F(RemarksTest, ARepeatedPacketIsNamedWithItsQpAndProgram) {
  EXPECT_EQ(of({.psn = 0xffffff}), "");
  EXPECT_EQ(of({.psn = 0}), "") << "PSNs wrap around";
  EXPECT_EQ(of({.psn = 0xffffff}), "retransmitted; QP 0x000034 of ping (pid 7)");
  EXPECT_EQ(of({.psn = 1}), "");
  EXPECT_EQ(of({.psn = 1}, pcap::Direction::kInbound), "") << "the other direction, on one device";
  EXPECT_EQ(of({.psn = 1, .dest_qpn = 0x99}), "") << "another QP";
  EXPECT_EQ(of({.psn = 1}, pcap::Direction::kInbound), "repeated; QP 0x000012");
}

TEST_F(RemarksTest, WhatMayRepeatForOtherReasonsIsNotNamed) {
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(of({.psn = 5, .opcode = 0x11}), "") << "an acknowledge";
    EXPECT_EQ(of({.psn = 5, .opcode = 0x24}), "") << "UC";
    EXPECT_EQ(of({.psn = 5, .opcode = 0x64}), "") << "UD";
  }
  EXPECT_EQ(of({.psn = 0x700000}), "");
  EXPECT_EQ(of({.psn = 0x100000}), "") << "far below: another QP with that number";
}

TEST_F(RemarksTest, TheRestOfAReadIsARetransmission) {
  EXPECT_EQ(of({.psn = 100, .opcode = 0x0c, .address = 0x10000, .length = 8192}), "");
  EXPECT_NE(of({.psn = 103, .opcode = 0x0c, .address = 0x10000 + 3 * 1024, .length = 8192 - 3 * 1024}), "");
  EXPECT_EQ(of({.psn = 108, .opcode = 0x0c, .address = 0x10000, .length = 8192}), "");
  EXPECT_EQ(of({.psn = 116, .opcode = 0x0c, .address = 0x10000, .length = 8192}), "")
      << "the same again, a new one";
  EXPECT_EQ(of({.psn = 124, .opcode = 0x0c, .address = 0x10000 + 8192 - 64, .length = 64}), "") << "its end";
}

TEST_F(RemarksTest, FaultsAreNamed) {
  EXPECT_EQ(of({.psn = 1}, pcap::Direction::kInbound, fault::kMarkDropped | fault::kMarkCorrupted),
            "dropped by urocectl fault, one bit changed by urocectl fault; QP 0x000012");
  EXPECT_EQ(of({.psn = 1}, pcap::Direction::kInbound, fault::kMarkDuplicated),
            "sent twice by urocectl fault; QP 0x000012");
}

TEST_F(RemarksTest, HeadersThatAreCutOffAreNoPacket) {
  const auto whole = roce({.opcode = 0x0c});
  for (std::size_t bytes = 0; bytes <= whole.size(); ++bytes) {
    pcap::Record record;
    remarks_.about(record,
                   std::vector<std::byte>(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes)));
  }
}

}  // namespace
}  // namespace uroce::packet_test
