// The conformance suite over every device that needs no DPDK.
#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "drivers/packet/controls.h"
#include "drivers/packet/fault/injector.h"
#include "drivers/packet/loopback/local.h"
#include "drivers/packet/pcap/capture.h"
#include "drivers/packet/switch/port.h"
#include "tests/unit/packet/conformance.h"

namespace uroce::packet_test {
namespace {

constexpr wire::Mac kMac{0x02, 0, 0, 0, 0, 1};
constexpr std::uint32_t kMtu = 9000, kBuffers = 2048;

using Device = loopback::LoopbackDevice<ethernet::SwitchPort>;

/// Both ends are one device, which sends to itself.
struct SelfRig {
  bool ready() const { return true; }
  std::string why() const { return {}; }
  void settle() {}
  wire::Mac to() const { return kMac; }

  ethernet::Switch lan{kMtu, kBuffers};
};

struct LoopbackRig : SelfRig {
  Device device{lan, kMac};
  auto& sender() { return device; }
  auto& receiver() { return device; }
};

struct IdleFaultRig : SelfRig {
  packet::Controls controls{"test"};
  fault::Injector<Device> device{controls.faults(), 0u, lan, kMac};
  auto& sender() { return device; }
  auto& receiver() { return device; }
};

/// Faults that change nothing: all frames go the long way.
struct BusyFaultRig : IdleFaultRig {
  BusyFaultRig() { EXPECT_EQ(controls.set_fault("drop=1e-300"), ""); }
};

struct CaptureRig : SelfRig {
  packet::Controls controls{"test"};
  pcap::Capture<fault::Injector<Device>> device{controls.recorder(), 0u, controls.faults(), 0u, lan, kMac};
  CaptureRig() { EXPECT_EQ(controls.start_capture("/dev/null"), ""); }
  auto& sender() { return device; }
  auto& receiver() { return device; }
};

/// Two ports of a switch.
struct SwitchRig : SelfRig {
  ethernet::SwitchPort from{lan, {0x02, 0, 0, 0, 0, 2}}, port{lan, kMac};
  auto& sender() { return from; }
  auto& receiver() { return port; }
};

using Rigs = ::testing::Types<LoopbackRig, IdleFaultRig, BusyFaultRig, CaptureRig, SwitchRig>;
INSTANTIATE_TYPED_TEST_SUITE_P(Software, Conformance, Rigs);

static_assert(net::PacketDevice<fault::Injector<Device>>);
static_assert(net::PacketDevice<pcap::Capture<Device>>);

TEST(Local, hands_over_the_very_buffer_that_was_written) {
  ethernet::Switch lan(kMtu, kBuffers);
  Device device(lan, kMac);
  base::Frame out;
  ASSERT_EQ(device.allocate(std::span(&out, 1)), 1u);
  fill(out, kMac, 4170, 1);
  const std::byte* written = out.data;
  ASSERT_EQ(device.transmit(std::span(&out, 1)), 1u);
  base::Frame in;
  ASSERT_EQ(device.receive(std::span(&in, 1)), 1u);
  EXPECT_EQ(in.data, written);
  EXPECT_NE(in.flags & base::kIpChecksumGood, 0u);
  EXPECT_EQ(in.flags & base::kIcrcGood, 0u) << "a raw packet QP may have written it";
  device.release(std::span(&in, 1));
  EXPECT_EQ(lan.free_buffers(), kBuffers);
}

TEST(Local, a_packet_of_our_own_needs_no_check_unless_it_was_damaged) {
  ethernet::Switch lan(kMtu, kBuffers);
  packet::Controls controls{"test"};
  fault::Injector<Device> device{controls.faults(), 0u, lan, kMac};
  const auto arrives_good = [&] {
    base::Frame out, in;
    EXPECT_EQ(device.allocate(std::span(&out, 1)), 1u);
    fill(out, kMac, 4170, 1);
    out.flags = base::kIcrcGood;
    EXPECT_EQ(device.transmit(std::span(&out, 1)), 1u);
    EXPECT_EQ(device.receive(std::span(&in, 1)), 1u);
    const bool good = (in.flags & base::kIcrcGood) != 0;
    device.release(std::span(&in, 1));
    return good;
  };
  EXPECT_TRUE(arrives_good());
  EXPECT_EQ(controls.set_fault("corrupt=1,direction=rx"), "");
  EXPECT_FALSE(arrives_good());
}

/// A frame that names its payload.
template <class Device>
base::Frame referring(Device& device, std::uint16_t packets, std::uint32_t bytes) {
  base::Frame frame;
  EXPECT_EQ(device.allocate(std::span(&frame, 1)), 1u);
  const base::PayloadReference reference{.address = 0x1000, .key = 5, .pd = 7, .bytes = bytes, .packets = packets};
  fill(frame, kMac, 54 + sizeof reference + base::kReferenceTrailer, 1);
  std::memcpy(frame.data + 54, &reference, sizeof reference);
  frame.flags = base::kIcrcGood | base::kByReference;
  return frame;
}

TEST(Local, a_frame_by_reference_comes_back_and_counts_as_its_packets) {
  ethernet::Switch lan(kMtu, kBuffers);
  Device device(lan, kMac);
  base::Frame out = referring(device, 8, 32768), in;
  ASSERT_EQ(device.transmit(std::span(&out, 1)), 1u);
  ASSERT_EQ(device.receive(std::span(&in, 1)), 1u);
  EXPECT_NE(in.flags & base::kByReference, 0u);
  EXPECT_EQ(base::reference_of(in).bytes, 32768u);
  EXPECT_EQ(device.counters().tx_packets, 8u);
  EXPECT_EQ(device.counters().tx_bytes, 32768u + 8 * (54 + base::kReferenceTrailer));
  device.release(std::span(&in, 1));
}

/// A port with a wire.
struct Wired : ethernet::SwitchPort {
  using SwitchPort::SwitchPort;
  bool carries_references() const = delete;
};

TEST(Local, a_frame_by_reference_never_reaches_a_wire) {
  ethernet::Switch lan(kMtu, kBuffers);
  loopback::LoopbackDevice<Wired> device(lan, kMac);
  base::Frame out = referring(device, 1, 4096), in;
  out.data[5] = std::byte{9};  // another MAC address
  ASSERT_EQ(device.transmit(std::span(&out, 1)), 1u);
  EXPECT_EQ(device.inner().counters().tx_packets, 0u);
  ASSERT_EQ(device.receive(std::span(&in, 1)), 1u);
  device.release(std::span(&in, 1));
}

TEST(Local, nothing_is_named_while_somebody_looks_or_harms) {
  ethernet::Switch lan(kMtu, kBuffers);
  packet::Controls controls{"test"};
  pcap::Capture<fault::Injector<Device>> device{controls.recorder(), 0u, controls.faults(), 0u, lan, kMac};
  EXPECT_TRUE(net::carries_references(device));
  EXPECT_EQ(controls.start_capture("/dev/null"), "");
  EXPECT_FALSE(net::carries_references(device));
  controls.stop_capture();
  EXPECT_TRUE(net::carries_references(device));
  EXPECT_EQ(controls.set_fault("drop=0.1"), "");
  EXPECT_FALSE(net::carries_references(device));
  EXPECT_EQ(controls.set_fault("off"), "");
  EXPECT_TRUE(net::carries_references(device));
}

// It was under way when the fault came.
TEST(Local, a_frame_by_reference_is_not_harmed) {
  ethernet::Switch lan(kMtu, kBuffers);
  packet::Controls controls{"test"};
  fault::Injector<Device> device{controls.faults(), 0u, lan, kMac};
  EXPECT_EQ(controls.set_fault("corrupt=1,dup=1,drop=0.5"), "");
  for (int i = 0; i < 20; ++i) {
    base::Frame out = referring(device.inner(), 8, 32768), in;
    ASSERT_EQ(device.transmit(std::span(&out, 1)), 1u);
    ASSERT_EQ(device.receive(std::span(&in, 1)), 1u);
    EXPECT_NE(in.flags & base::kIcrcGood, 0u);
    EXPECT_EQ(base::reference_of(in).bytes, 32768u);
    device.release(std::span(&in, 1));
  }
}

TEST(Local, a_roce_multicast_goes_out_and_comes_back) {
  ethernet::Switch lan(kMtu, kBuffers);
  Device device(lan, kMac);
  base::Frame out;
  ASSERT_EQ(device.allocate(std::span(&out, 1)), 1u);
  fill(out, {0x01, 0, 0x5e, 1, 2, 3}, 100, 1);
  out.data[12] = std::byte{0x08};
  out.data[13] = std::byte{0x00};
  out.data[14] = std::byte{0x45};
  out.data[23] = std::byte{17};
  out.data[36] = std::byte{4791 >> 8};
  out.data[37] = std::byte{4791 & 0xff};
  ASSERT_EQ(device.transmit(std::span(&out, 1)), 1u);
  EXPECT_EQ(device.inner().counters().tx_packets, 1u);
  base::Frame in;
  ASSERT_EQ(device.receive(std::span(&in, 1)), 1u);
  device.release(std::span(&in, 1));
  EXPECT_EQ(lan.free_buffers(), kBuffers);
}

TEST(Local, a_frame_of_a_qp_to_a_group_comes_back_while_there_are_flows) {
  ethernet::Switch lan(kMtu, kBuffers);
  Device device(lan, kMac);
  const auto comes_back = [&](const wire::Mac& to, std::uint32_t sender) {
    base::Frame out;
    EXPECT_EQ(device.allocate(std::span(&out, 1)), 1u);
    fill(out, to, 100, 1);
    out.sender = sender;
    const std::vector<std::byte> sent(out.data, out.data + out.length);
    const std::uint64_t before = device.inner().counters().tx_packets;
    EXPECT_EQ(device.transmit(std::span(&out, 1)), 1u);
    EXPECT_EQ(device.inner().counters().tx_packets, before + 1) << "it is also sent";
    base::Frame in;
    if (device.receive(std::span(&in, 1)) == 0) return false;
    EXPECT_TRUE(std::ranges::equal(sent, in.bytes()));
    EXPECT_EQ(in.sender, sender);
    device.release(std::span(&in, 1));
    return true;
  };
  constexpr wire::Mac kGroup{0x01, 0x50, 0x56, 0x19, 0x20, 0xa7}, kBroadcast{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
  EXPECT_FALSE(comes_back(kGroup, 17)) << "no flow wants it";
  device.set_rx_filter(net::RxFilter::kAllForPort);
  EXPECT_TRUE(comes_back(kGroup, 17));
  EXPECT_TRUE(comes_back(kBroadcast, 17));
  EXPECT_FALSE(comes_back(kBroadcast, 0)) << "ARP of the port itself";
  EXPECT_FALSE(comes_back({2, 0, 0, 0, 0, 9}, 17));
  device.set_rx_filter(net::RxFilter::kRoceOnly);
  EXPECT_FALSE(comes_back(kGroup, 17));
  EXPECT_EQ(lan.free_buffers(), kBuffers);
}

TEST(Local, frames_to_others_go_to_the_port) {
  ethernet::Switch lan(kMtu, kBuffers);
  Device device(lan, kMac);
  base::Frame out;
  ASSERT_EQ(device.allocate(std::span(&out, 1)), 1u);
  fill(out, {2, 0, 0, 0, 0, 9}, 100, 1);
  ASSERT_EQ(device.transmit(std::span(&out, 1)), 1u);
  base::Frame in;
  EXPECT_EQ(device.receive(std::span(&in, 1)), 0u);
  EXPECT_EQ(device.inner().counters().tx_packets, 1u);
}

}  // namespace
}  // namespace uroce::packet_test
