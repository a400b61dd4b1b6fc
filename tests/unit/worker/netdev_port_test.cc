// The kernel's interface of a port: its frames pass a worker without a system call of that, and RoCE never does. A
// socket stands for the interface, and the test for the kernel.
#include "worker/netdev_port.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "host.h"
#include "platform/unique_fd.h"

namespace uroce::worker::testing {
namespace {

class SocketNetdev final : public net::Netdev {
 public:
  SocketNetdev() {
    int fds[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    ours_ = UniqueFd(fds[0]);
    kernels_ = UniqueFd(fds[1]);
  }
  std::string name() const override { return name_; }
  std::uint32_t index() const override { return 0; }
  int fd() const override { return ours_.get(); }
  int add_address(const net::InterfaceAddress&) override { return 0; }
  int remove_address(const net::InterfaceAddress&) override { return 0; }
  int set_mtu(std::uint32_t) override { return 0; }
  int set_carrier(bool) override { return 0; }

  // The kernel.
  /// False: it has to wait.
  bool send(std::vector<std::byte> frame) {
    frame.insert(frame.begin(), KernelFrame::kHeader, std::byte{0});
    return ::write(kernels_.get(), frame.data(), frame.size()) == static_cast<ssize_t>(frame.size());
  }
  /// Empty: there is none yet.
  std::vector<std::byte> take() {
    std::vector<std::byte> frame(9000);
    const ssize_t got = ::read(kernels_.get(), frame.data(), frame.size());
    if (got <= 0) return {};
    EXPECT_TRUE(std::all_of(frame.begin(), frame.begin() + KernelFrame::kHeader,
                            [](std::byte each) { return each == std::byte{0}; }));
    return {frame.begin() + KernelFrame::kHeader, frame.begin() + got};
  }

 private:
  std::string name_ = "test0";
  UniqueFd ours_, kernels_;
};

/// A frame of no protocol that the daemon knows, with `number` in it.
std::vector<std::byte> frame_of(const wire::Mac& from, const wire::Mac& to, std::uint32_t number,
                                std::size_t bytes = 100) {
  std::vector<std::byte> frame(bytes);
  wire::store_mac(frame.data(), to);
  wire::store_mac(frame.data() + 6, from);
  wire::store16(frame.data() + 12, 0x88b5);  // IEEE 802, local experiments
  wire::store32(frame.data() + 14, number);
  return frame;
}
std::uint32_t number_of(const std::vector<std::byte>& frame) { return wire::load32(frame.data() + 14); }

class NetdevPortTest : public ::testing::Test {
 protected:
  NetdevPortTest() {
    a.device.connect(b.device);
    b.device.connect(a.device);
    for (int i = 0; i < 4; ++i) step();  // both announce their addresses
    a.core.set_netdev(&a_port);
    b.core.set_netdev(&b_port);
  }
  void start() {
    EXPECT_TRUE(a_port.start([this] { ++wakes; }));
    EXPECT_TRUE(b_port.start([this] { ++wakes; }));
  }
  void step() {
    now += kMicrosecond;
    a.loop.step(now);
    b.loop.step(now);
  }
  /// Steps until `done`. False: it took ten seconds.
  bool step_until(const std::function<bool()>& done) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!done()) {
      if (std::chrono::steady_clock::now() > limit) return false;
      step();
      std::this_thread::yield();
    }
    return true;
  }
  /// What the kernel of b receives until the frame `last`.
  std::vector<std::uint32_t> numbers_until(std::uint32_t last) {
    std::vector<std::uint32_t> numbers;
    EXPECT_TRUE(step_until([&] {
      for (auto frame = b_netdev.take(); !frame.empty(); frame = b_netdev.take())
        numbers.push_back(number_of(frame));
      return !numbers.empty() && numbers.back() == last;
    }));
    return numbers;
  }

  Nanos now = kSecond;
  Host a{1}, b{2};
  SocketNetdev a_netdev, b_netdev;
  NetdevPort a_port{a_netdev, a.mac, a.core.config().frame_bytes};
  NetdevPort b_port{b_netdev, b.mac, b.core.config().frame_bytes};
  std::atomic<int> wakes{0};
};

TEST_F(NetdevPortTest, TheKernelsFramesPassInOrderAndNoneIsLostWhileTheKernelWaits) {
  start();
  // At once no more than a socket's buffer holds, which stands for the other kernel: what it does not take is lost.
  constexpr std::uint32_t kFrames = 3000, kAtOnce = 16;
  std::uint32_t sent = 0;
  std::vector<std::uint32_t> numbers;
  EXPECT_TRUE(step_until([&] {
    while (sent < kFrames && sent < numbers.size() + kAtOnce &&
           a_netdev.send(frame_of(a.mac, b.mac, sent, 60 + sent % 4200)))
      ++sent;
    for (auto frame = b_netdev.take(); !frame.empty(); frame = b_netdev.take()) {
      EXPECT_EQ(frame.size(), 60 + number_of(frame) % 4200);
      numbers.push_back(number_of(frame));
    }
    return numbers.size() == kFrames;
  }));
  std::vector<std::uint32_t> all(kFrames);
  std::iota(all.begin(), all.end(), 0u);
  EXPECT_EQ(numbers, all);
  EXPECT_GT(wakes, 0);
  EXPECT_EQ(a.core.counters().netdev_sent, kFrames);
  EXPECT_EQ(b.core.counters().netdev_received, kFrames);
  EXPECT_EQ(a.core.counters().netdev_dropped + b.core.counters().netdev_dropped, 0u);
}

TEST_F(NetdevPortTest, AFullRingHoldsTheKernelBackUntilTheWorkerTurns) {
  start();
  const int slots = static_cast<int>(PacketRing::kSlots);
  std::uint32_t sent = 0;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  // The thread fills the ring, holds one more, and sleeps; then the socket fills up.
  for (bool full = false; !(full && wakes == slots) && std::chrono::steady_clock::now() < limit;) {
    full = !a_netdev.send(frame_of(a.mac, b.mac, sent));
    if (!full) ++sent;
  }
  ASSERT_EQ(wakes, slots);
  EXPECT_EQ(numbers_until(sent - 1).size(), sent);
}

TEST_F(NetdevPortTest, ADutyCycleSendsSomeOfTheKernelsFrames) {
  start();
  std::uint32_t sent = 0;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (wakes < 100 && std::chrono::steady_clock::now() < limit) {
    if (sent < 100 && a_netdev.send(frame_of(a.mac, b.mac, sent, 4000))) ++sent;
  }
  ASSERT_EQ(wakes, 100) << "all are in the ring";
  a.loop.step(now += kMicrosecond);
  EXPECT_EQ(a.core.counters().netdev_sent, 17u) << "64 KiB";
  EXPECT_TRUE(a.core.work_waiting());
}

TEST_F(NetdevPortTest, AFullPortTakesFramesOfQpsAndOfTheKernelInTurn) {
  start();
  a.connect(b, now);
  b.connect(a, now);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (wakes < static_cast<int>(PacketRing::kSlots) && std::chrono::steady_clock::now() < limit) {
    static_cast<void>(a_netdev.send(frame_of(a.mac, b.mac, 0, 4000)));
  }
  for (int i = 0; i < 60; ++i) a.rc.post_write(7, a.sge(0, 65536), Host::kIova, b.key.value);
  a.ring();
  a.device.take_at_most(1);
  const std::uint64_t before = a.device.counters().tx_packets;
  for (int i = 0; i < 600; ++i) step();
  const std::uint64_t of_kernel = a.core.counters().netdev_sent;
  EXPECT_GE(of_kernel, 2 * 17u) << "64 KiB each time";
  EXPECT_GE(a.device.counters().tx_packets - before - of_kernel, 200u);
}

TEST_F(NetdevPortTest, RoceIsNotForTheKernelNorIsWhatTheLinkStackAnswers) {
  start();
  a.connect(b, now);
  b.connect(a, now);
  a.rc.post_write(7, a.sge(0, 9000), Host::kIova, b.key.value);
  a.ring();
  EXPECT_TRUE(step_until([&] { return a.poll(a.qpn) == 1; }));
  wire::Mac mac{};
  static_cast<void>(a.link.resolve(b.address, now, mac));  // an ARP request, which b answers
  a.core.touch_link();
  EXPECT_TRUE(step_until([&] { return a.link.resolve(b.address, now, mac) == net::Resolution::kResolved; }));
  EXPECT_TRUE(a_netdev.send(frame_of(a.mac, b.mac, 1)));
  EXPECT_EQ(numbers_until(1), std::vector<std::uint32_t>{1});
  EXPECT_EQ(b.core.counters().netdev_received, 1u);
  EXPECT_EQ(a.core.counters().netdev_received, 1u) << "the answer is for both";
}

TEST_F(NetdevPortTest, ProgramsSendNoRoceThroughASocketOfTheKernel) {
  start();
  const auto udp = [&](std::uint16_t port) {
    std::vector<std::byte> frame = frame_of(a.mac, b.mac, 0);
    wire::store16(&frame[12], 0x0800);
    wire::store8(&frame[14], 0x45);
    wire::store16(&frame[16], 86);
    wire::store8(&frame[23], 17);
    wire::store16(&frame[36], port);
    return frame;
  };
  // To be removed by a router on the way (RFC 8986, 4.16.1).
  std::vector<std::byte> routed = frame_of(a.mac, b.mac, 0);
  wire::store16(&routed[12], 0x86dd);
  wire::store8(&routed[14], 0x60);
  wire::store16(&routed[18], 46);
  wire::store8(&routed[20], 43);
  wire::store8(&routed[54], 17);
  wire::store8(&routed[57], 1);  // segments left
  EXPECT_TRUE(a_netdev.send(routed));
  EXPECT_TRUE(a_netdev.send(udp(wire::kRoceUdpPort)));
  EXPECT_TRUE(a_netdev.send(udp(wire::kRoceUdpPort + 1)));
  EXPECT_TRUE(step_until([&] { return b.core.counters().netdev_received == 1; }));
  EXPECT_EQ(a.core.counters().netdev_sent, 1u);
  EXPECT_EQ(a.core.counters().netdev_dropped, 2u);
}

TEST_F(NetdevPortTest, AFrameOfThePortItselfThatComesBackIsNotForItsKernel) {
  start();
  a.device.connect(a.device);  // a segment that sends everything back
  EXPECT_TRUE(a_netdev.send(frame_of(a.mac, wire::kBroadcastMac, 1)));
  EXPECT_TRUE(a_netdev.send(frame_of(b.mac, wire::kBroadcastMac, 2)));
  EXPECT_TRUE(step_until([&] {
    const auto frame = a_netdev.take();
    EXPECT_TRUE(frame.empty() || number_of(frame) == 2);
    return !frame.empty();
  }));
  EXPECT_EQ(a.core.counters().netdev_received, 1u);
}

TEST_F(NetdevPortTest, WhatTheThreadLosesIsCounted) {
  start();
  EXPECT_TRUE(a_netdev.send(frame_of(a.mac, b.mac, 1, a.core.config().frame_bytes + 1)));
  EXPECT_TRUE(a_netdev.send(frame_of(a.mac, b.mac, 2)));
  EXPECT_EQ(numbers_until(2), std::vector<std::uint32_t>{2});
  EXPECT_EQ(a.core.counters().netdev_dropped, 1u);
}

TEST_F(NetdevPortTest, WhatAKernelDoesNotReadIsCountedAsDropped) {
  const auto frame = frame_of(a.mac, b.mac, 1);
  for (std::uint32_t i = 0; i < NetdevPort::kSlotsToKernel; ++i)
    EXPECT_TRUE(b_port.deliver(frame));  // its thread does not run
  EXPECT_FALSE(b_port.deliver(frame));
  EXPECT_TRUE(a_port.start([] {}));
  EXPECT_TRUE(a_netdev.send(frame));
  EXPECT_TRUE(step_until([&] { return b.core.counters().netdev_dropped == 1; }));
}

TEST_F(NetdevPortTest, ThePortDeliversAllFramesForItWhileThereIsAnInterface) {
  EXPECT_EQ(a.device.filter(), net::RxFilter::kAllForPort);
  a.core.set_netdev(nullptr);
  EXPECT_EQ(a.device.filter(), net::RxFilter::kRoceOnly);
}

TEST_F(NetdevPortTest, AThreadThatSleepsEnds) {
  start();
  a_port.stop();
  a_port.stop();
  EXPECT_TRUE(a_port.deliver(frame_of(b.mac, a.mac, 1)));
}

}  // namespace
}  // namespace uroce::worker::testing
