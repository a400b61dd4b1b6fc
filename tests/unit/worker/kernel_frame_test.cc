// Frames of the kernel with offloads: what leaves has right checksums, and the segments make up the whole.
#include "worker/kernel_frame.h"

#include <gtest/gtest.h>
#include <cstring>
#include <random>
#include <vector>

#include "tcp_frame.h"
#include "wire/ethernet_frame.h"
#include "wire/network_headers.h"

namespace uroce::worker {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t kEthernet = 14;

struct Given {
  VirtioNetHeader header{};
  Bytes frame;

  Bytes read() const {
    Bytes all(KernelFrame::kHeader);
    std::memcpy(all.data(), &header, sizeof(header));
    all.insert(all.end(), frame.begin(), frame.end());
    return all;
  }
};

/// A TCP segment with FIN, PSH and CWR, whose checksum is missing.
Given tcp(bool v4, std::size_t payload) {
  using testing::TcpFrame;
  const TcpFrame tcp{v4, payload, 1000, 0, TcpFrame::kAck | TcpFrame::kPsh | TcpFrame::kFin | TcpFrame::kCwr};
  Given given;
  given.frame = tcp.bytes();
  wire::store16(&given.frame[tcp.transport() + 16], 0x5555);
  given.header.flags = VirtioNetHeader::kNeedsChecksum;
  given.header.header_bytes = static_cast<std::uint16_t>(tcp.headers());
  given.header.checksum_start = static_cast<std::uint16_t>(tcp.transport());
  given.header.checksum_offset = 16;
  return given;
}

std::vector<Bytes> take_all(KernelFrame& frame) {
  std::vector<Bytes> all;
  while (frame.left() != 0) frame.take(all.emplace_back(frame.next_bytes()));
  return all;
}

class KernelFrameTest : public ::testing::TestWithParam<bool> {};

TEST_P(KernelFrameTest, SegmentsHaveRightHeadersAndMakeUpTheWhole) {
  const std::size_t ip = GetParam() ? 20 : 40, headers = kEthernet + ip + testing::TcpFrame::kTcp;
  Given given = tcp(GetParam(), 60001);
  given.header.segments = GetParam() ? VirtioNetHeader::kTcp4 : VirtioNetHeader::kTcp6;
  given.header.segment_bytes = 8948;
  Bytes read = given.read();
  KernelFrame frame;
  ASSERT_TRUE(frame.assign(read));
  ASSERT_EQ(frame.left(), 7u);
  const std::vector<Bytes> all = take_all(frame);
  Bytes payload;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Bytes& each = all[i];
    const wire::FrameLayout layout = wire::layout_of(each);
    EXPECT_TRUE(layout.tcp);
    EXPECT_TRUE(wire::checksums_good(each, layout)) << i;
    EXPECT_EQ(wire::load32(&each[kEthernet + ip + 4]), 1000u + i * 8948);
    if (GetParam()) {
      EXPECT_EQ(wire::load16(&each[kEthernet + 4]), 0x1234 + i);
    }
    const unsigned flags = wire::load8(&each[kEthernet + ip + 13]);
    EXPECT_EQ((flags & 0x80) != 0, i == 0) << "CWR";
    EXPECT_EQ((flags & 0x09) == 0x09, i + 1 == all.size()) << "FIN and PSH";
    payload.insert(payload.end(), each.begin() + static_cast<std::ptrdiff_t>(headers), each.end());
  }
  EXPECT_TRUE(std::equal(payload.begin(), payload.end(), given.frame.begin() + static_cast<std::ptrdiff_t>(headers),
                         given.frame.end()));
}

TEST_P(KernelFrameTest, AMissingChecksumIsCompleted) {
  Given given = tcp(GetParam(), 999);
  Bytes read = given.read();
  KernelFrame frame;
  ASSERT_TRUE(frame.assign(read));
  const std::vector<Bytes> all = take_all(frame);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_TRUE(wire::checksums_good(all[0], wire::layout_of(all[0])));
}
INSTANTIATE_TEST_SUITE_P(Ip, KernelFrameTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "v4" : "v6"; });

// Of a tunnel, say: another protocol than those whose headers are known.
TEST(KernelFrame, AnyChecksumOfThatKindIsCompleted) {
  Given given;
  given.frame.resize(61);
  for (std::size_t i = 14; i < given.frame.size(); ++i) given.frame[i] = static_cast<std::byte>(i);
  given.header.flags = VirtioNetHeader::kNeedsChecksum;
  given.header.checksum_start = 20;
  given.header.checksum_offset = 8;
  Bytes read = given.read();
  KernelFrame frame;
  ASSERT_TRUE(frame.assign(read));
  const Bytes sent = take_all(frame).at(0);
  Bytes zeroed = given.frame;
  EXPECT_EQ(wire::load16(&sent[28]), wire::internet_checksum(std::span(zeroed).subspan(20)));
}

TEST(KernelFrame, AFrameWithoutOffloadsIsTakenAsItIs) {
  Given given;
  given.frame.assign(60, std::byte{5});
  Bytes read = given.read();
  KernelFrame frame;
  ASSERT_TRUE(frame.assign(read));
  EXPECT_EQ(take_all(frame), std::vector<Bytes>{given.frame});
}

TEST(KernelFrame, WhatNobodyAskedForIsRefused) {
  KernelFrame frame;
  Given given = tcp(true, 100);
  given.header.segments = 3;
  given.header.segment_bytes = 50;
  Bytes read = given.read();
  EXPECT_FALSE(frame.assign(read));
  given.header.segments = VirtioNetHeader::kTcp4;
  given.header.segment_bytes = 0;
  read = given.read();
  EXPECT_FALSE(frame.assign(read));
  given = tcp(true, 100);
  given.header.checksum_start = static_cast<std::uint16_t>(given.frame.size() - 10);
  read = given.read();
  EXPECT_FALSE(frame.assign(read)) << "the checksum is outside";
  EXPECT_FALSE(frame.assign(std::span(read).first(KernelFrame::kHeader + 13)));
  EXPECT_EQ(frame.left(), 0u);
}

TEST(KernelFrame, SurvivesRandomBytes) {
  std::mt19937_64 random(7);
  const Bytes seeds[] = {tcp(true, 3000).read(), tcp(false, 3000).read()};
  KernelFrame frame;
  for (int i = 0; i < 20000; ++i) {
    Bytes read = seeds[random() % 2];
    if (random() % 4 == 0) read.resize(random() % read.size());
    for (std::size_t n = random() % 8; n != 0 && !read.empty(); --n) {
      read[random() % std::min<std::size_t>(read.size(), 100)] = static_cast<std::byte>(random());
    }
    if (read.size() > 1 && random() % 2 == 0) read[1] = std::byte{1};  // TCPV4
    if (!frame.assign(read)) continue;
    ASSERT_LE(frame.left(), 3000u + 1) << i;
    for (const Bytes& each : take_all(frame)) ASSERT_LE(each.size(), read.size());
  }
}

}  // namespace
}  // namespace uroce::worker
