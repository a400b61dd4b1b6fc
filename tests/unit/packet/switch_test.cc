// What the switch does beyond the contract of a device (software_devices_test.cc): which port receives which frame.
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "drivers/packet/switch/port.h"
#include "tests/unit/packet/conformance.h"

namespace uroce::packet_test {
namespace {

constexpr wire::Mac mac(std::uint8_t last) { return {0x02, 0, 0, 0, 0, last}; }
constexpr wire::Mac kGroup{0x01, 0, 0x5e, 1, 2, 3}, kBroadcast{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
constexpr std::uint32_t kAllBuffers = 2048, kBytesEach = 100;

class SwitchTest : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(lan.free_buffers(), kAllBuffers) << "each frame gives its buffer back"; }

  /// Sends a frame from port a. False: it has to be offered again, and was discarded here.
  bool send(const wire::Mac& to, std::uint32_t flags = 0) {
    base::Frame frame;
    EXPECT_EQ(a.allocate({&frame, 1}), 1u);
    fill(frame, to, kBytesEach, 7);
    frame.flags = flags;
    frame.sender = 17;
    if (a.transmit({&frame, 1}) == 1) return true;
    a.discard({&frame, 1});
    return false;
  }
  /// What the port has received, in order. The frames are released.
  static std::vector<base::Frame> received(ethernet::SwitchPort& port) {
    std::vector<base::Frame> all;
    base::Frame frame;
    while (port.receive({&frame, 1}) == 1) {
      EXPECT_TRUE(intact(frame, kBytesEach));
      all.push_back(frame);
      port.release({&frame, 1});
    }
    return all;
  }

  ethernet::Switch lan{9000, kAllBuffers};
  ethernet::SwitchPort a{lan, mac(1)}, b{lan, mac(2)}, c{lan, mac(3)};
};

TEST_F(SwitchTest, a_frame_goes_to_the_port_with_its_address_in_the_buffer_in_which_it_was_written) {
  base::Frame out, in;
  ASSERT_EQ(a.allocate({&out, 1}), 1u);
  fill(out, mac(3), kBytesEach, 7);
  ASSERT_EQ(a.transmit({&out, 1}), 1u);
  ASSERT_EQ(c.receive({&in, 1}), 1u);
  EXPECT_EQ(in.data, out.data);
  c.release({&in, 1});
  EXPECT_TRUE(received(a).empty() && received(b).empty());
  EXPECT_EQ(a.counters().tx_packets, 1u);
  EXPECT_EQ(c.counters().rx_packets, 1u);
  EXPECT_EQ(c.counters().rx_bytes, kBytesEach);
}

TEST_F(SwitchTest, a_frame_of_a_group_goes_to_all_others) {
  for (const wire::Mac& to : {kGroup, kBroadcast}) {
    ASSERT_TRUE(send(to));
    EXPECT_EQ(received(b).size(), 1u);
    EXPECT_EQ(received(c).size(), 1u);
    EXPECT_TRUE(received(a).empty());
  }
}

TEST_F(SwitchTest, a_frame_to_nobody_reaches_only_ports_that_want_all) {
  ASSERT_TRUE(send(mac(9)));
  EXPECT_TRUE(received(b).empty() && received(c).empty());
  c.set_rx_filter(net::RxFilter::kPromiscuous);
  ASSERT_TRUE(send(mac(9)));
  ASSERT_TRUE(send(mac(2)));
  EXPECT_EQ(received(b).size(), 1u);
  EXPECT_EQ(received(c).size(), 1u) << "not what is for another port";
}

TEST_F(SwitchTest, a_frame_to_its_own_port_goes_nowhere) {
  ASSERT_TRUE(send(mac(1)));
  EXPECT_TRUE(received(a).empty() && received(b).empty() && received(c).empty());
}

TEST_F(SwitchTest, a_frame_is_too_short_for_an_address) {
  for (std::uint32_t length = 0; length < 6; ++length) {
    base::Frame frame;
    ASSERT_EQ(a.allocate({&frame, 1}), 1u);
    std::memset(frame.data, 0xff, 6);
    frame.length = length;
    ASSERT_EQ(a.transmit({&frame, 1}), 1u);
    EXPECT_EQ(b.receive({&frame, 1}), 0u);
  }
}

TEST_F(SwitchTest, only_the_sender_and_that_its_transport_built_the_packet_are_seen_elsewhere) {
  ASSERT_TRUE(send(mac(2), base::kIpChecksumGood | base::kIpChecksumNeeded));
  ASSERT_TRUE(send(mac(2), base::kIcrcGood));
  ASSERT_TRUE(send(kGroup, base::kIcrcGood));
  const auto frames = received(b);
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_EQ(frames[0].flags, 0u) << "a raw packet QP may have written anything";
  EXPECT_EQ(frames[1].flags, base::kIcrcGood | base::kIpChecksumGood);
  EXPECT_EQ(frames[2].flags, base::kIcrcGood | base::kIpChecksumGood);
  for (const base::Frame& frame : frames) EXPECT_EQ(frame.sender, 17u);
  received(c);
}

TEST_F(SwitchTest, a_frame_by_reference_reaches_one_port_or_none) {
  const auto send_reference = [this](const wire::Mac& to) {
    base::Frame frame;
    EXPECT_EQ(a.allocate({&frame, 1}), 1u);
    const base::PayloadReference reference{.address = 0x1000, .bytes = 32768, .packets = 8};
    fill(frame, to, 54 + sizeof reference + base::kReferenceTrailer, 7);
    std::memcpy(frame.data + 54, &reference, sizeof reference);
    frame.flags = base::kIcrcGood | base::kByReference;
    EXPECT_EQ(a.transmit({&frame, 1}), 1u);
  };
  send_reference(mac(2));
  base::Frame in;
  ASSERT_EQ(b.receive({&in, 1}), 1u);
  EXPECT_NE(in.flags & base::kByReference, 0u);
  EXPECT_EQ(base::reference_of(in).bytes, 32768u);
  b.release({&in, 1});
  EXPECT_EQ(b.counters().rx_packets, 8u) << "as many as a wire would carry";
  EXPECT_EQ(a.counters().tx_bytes, b.counters().rx_bytes);
  c.set_rx_filter(net::RxFilter::kPromiscuous);
  send_reference(mac(9));
  send_reference(kGroup);
  EXPECT_EQ(b.receive({&in, 1}) + c.receive({&in, 1}), 0u);
}

TEST_F(SwitchTest, a_full_port_makes_its_senders_wait_and_loses_only_copies) {
  for (std::uint32_t i = 0; i < ethernet::SwitchPort::kSlots; ++i) ASSERT_TRUE(send(mac(2)));
  EXPECT_FALSE(send(mac(2)));
  EXPECT_TRUE(send(mac(3))) << "the other port has room";
  EXPECT_TRUE(send(kGroup));
  EXPECT_EQ(b.counters().rx_dropped, 1u);
  EXPECT_EQ(received(c).size(), 2u);
  EXPECT_EQ(received(b).size(), ethernet::SwitchPort::kSlots);
  EXPECT_TRUE(send(mac(2)));
  EXPECT_FALSE(b.arm_wake());
  EXPECT_EQ(received(b).size(), 1u);
  EXPECT_TRUE(b.arm_wake());
}

TEST_F(SwitchTest, copies_need_buffers) {
  std::vector<base::Frame> held(kAllBuffers - 1);
  ASSERT_EQ(a.allocate(held), held.size());
  EXPECT_TRUE(send(kBroadcast));
  EXPECT_EQ(b.counters().rx_dropped, 1u);
  EXPECT_EQ(c.counters().rx_dropped, 1u);
  a.discard(held);
}

TEST_F(SwitchTest, a_port_takes_its_address_and_its_frames_with_it) {
  std::optional<ethernet::SwitchPort> leaving(std::in_place, lan, mac(4));
  ASSERT_TRUE(send(mac(4)));
  leaving.reset();
  EXPECT_EQ(lan.free_buffers(), kAllBuffers);
  ASSERT_TRUE(send(mac(4)));
  ASSERT_TRUE(send(kBroadcast));
  EXPECT_EQ(received(b).size(), 1u);
  received(c);
}

}  // namespace
}  // namespace uroce::packet_test
