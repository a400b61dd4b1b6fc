#include "proto/state/packet_builder.h"

#include <gtest/gtest.h>

#include <array>

namespace uroce::proto::test {
namespace {

std::uint32_t flags_of(bool v6, bool offload) {
  wire::PathAddress address;
  const std::array<std::byte, 16> zeros{};
  address.source = address.dest = v6 ? wire::load_ipv6(zeros.data()) : wire::load_ipv4(zeros.data());
  std::array<std::byte, 256> bytes{};
  base::Frame frame{};
  frame.data = bytes.data();
  frame.capacity = bytes.size();
  PacketBuilder builder(wire::crc_engine(), offload);
  EXPECT_TRUE(builder.start(frame, wire::FrameTemplate(address), wire::Bth{}, 0, 0));
  return frame.flags;
}

// Ports do as they are asked: net_e1000_em wrote an IPv4 checksum over the source address of IPv6 headers.
TEST(PacketBuilder, RequestsTheChecksumOfIpv4FromAPortThatHasIt) {
  EXPECT_NE(flags_of(false, true) & base::kIpChecksumNeeded, 0u);
  EXPECT_EQ(flags_of(true, true) & base::kIpChecksumNeeded, 0u);
  EXPECT_EQ(flags_of(false, false) & base::kIpChecksumNeeded, 0u);
}

}  // namespace
}  // namespace uroce::proto::test
