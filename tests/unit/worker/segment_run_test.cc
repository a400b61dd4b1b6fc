// TCP segments that are joined for the kernel: it gets the bytes of the wire, and only what it would join itself.
#include "worker/segment_run.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <list>
#include <random>
#include <vector>

#include "tcp_frame.h"
#include "worker/kernel_frame.h"

namespace uroce::worker {
namespace {

using testing::TcpFrame;
using Bytes = std::vector<std::byte>;

Bytes written(SegmentRun& run) {
  Bytes all;
  for (const iovec& part : run.parts()) {
    const auto* const from = static_cast<const std::byte*>(part.iov_base);
    all.insert(all.end(), from, from + part.iov_len);
  }
  return all;
}

TcpFrame segment(bool v4, std::uint32_t index, std::size_t bytes = 1000) {
  return {.v4 = v4, .payload = bytes, .sequence = 0xfffff000u + index * 1000, .from = index * 1000};
}

class SegmentRunTest : public ::testing::TestWithParam<bool> {
 protected:
  /// Whether the run has taken the frame.
  bool add(const TcpFrame& frame) { return run_.add(kept_.emplace_back(frame.bytes())); }

  std::list<Bytes> kept_;
  SegmentRun run_;
};

// The kernel's way back is KernelFrame, which cuts the whole into what was joined.
TEST_P(SegmentRunTest, WhatIsJoinedCanBeCutAgain) {
  for (std::uint32_t i = 0; i < 20; ++i) ASSERT_TRUE(add(segment(GetParam(), i))) << i;
  TcpFrame last = segment(GetParam(), 20, 77);
  last.flags |= TcpFrame::kPsh;
  ASSERT_TRUE(add(last));
  EXPECT_EQ(run_.frames(), 21u);
  EXPECT_FALSE(add(segment(GetParam(), 21))) << "a short one is the last";
  Bytes whole = written(run_);
  VirtioNetHeader header;
  std::memcpy(&header, whole.data(), sizeof(header));
  EXPECT_EQ(header.segment_bytes, 1000);
  EXPECT_EQ(header.header_bytes, last.headers());
  KernelFrame frame;
  ASSERT_TRUE(frame.assign(whole));
  ASSERT_EQ(frame.left(), 21u);
  std::uint32_t index = 0;
  for (const Bytes& wanted : kept_) {
    if (index == 21) break;
    Bytes cut(frame.next_bytes());
    frame.take(cut);
    ASSERT_TRUE(wire::checksums_good(cut, wire::layout_of(cut)));
    Bytes same = wanted;  // but for the identification, which was the same in all
    if (GetParam()) {
      wire::store16(&same[TcpFrame::kEthernet + 4], 0x1234 + index);
      wire::fill_checksums(same, wire::layout_of(same));
    }
    EXPECT_EQ(cut, same) << index;
    ++index;
  }
}

TEST_P(SegmentRunTest, TheChecksumIsThatOfThePseudoHeader) {
  ASSERT_TRUE(add(segment(GetParam(), 0)));
  ASSERT_TRUE(add(segment(GetParam(), 1)));
  Bytes whole = written(run_);
  VirtioNetHeader header;
  std::memcpy(&header, whole.data(), sizeof(header));
  ASSERT_EQ(header.flags, VirtioNetHeader::kNeedsChecksum);
  // Completed as the kernel does, over the whole.
  const std::span<std::byte> frame = std::span(whole).subspan(sizeof(header));
  const std::uint16_t value = wire::internet_checksum(frame.subspan(header.checksum_start));
  wire::store16(&frame[header.checksum_start + header.checksum_offset], value);
  EXPECT_TRUE(wire::checksums_good(frame, wire::layout_of(frame)));
}

TEST_P(SegmentRunTest, WhatDiffersBeginsAnotherRun) {
  using Change = std::function<void(Bytes&)>;
  const TcpFrame next = segment(GetParam(), 1);
  const std::size_t tcp = next.transport();
  const std::pair<const char*, Change> changes[] = {
      {"source address", [&](Bytes& b) { b[tcp - 6] ^= std::byte{1}; }},
      {"port", [&](Bytes& b) { b[tcp + 1] ^= std::byte{1}; }},
      {"gap", [&](Bytes& b) { b[tcp + 7] ^= std::byte{1}; }},
      {"acknowledge", [&](Bytes& b) { b[tcp + 11] ^= std::byte{1}; }},
      {"window", [&](Bytes& b) { b[tcp + 15] ^= std::byte{1}; }},
      {"DF, or flow label",
       [&](Bytes& b) { b[GetParam() ? 20 : 16] ^= GetParam() ? std::byte{0x40} : std::byte{1}; }},
      {"FIN", [&](Bytes& b) { b[tcp + 13] |= std::byte{1}; }},
      {"ECE", [&](Bytes& b) { b[tcp + 13] |= std::byte{0x40}; }},
      {"URG", [&](Bytes& b) { b[tcp + 13] |= std::byte{0x20}; }},
      {"no ACK", [&](Bytes& b) { b[tcp + 13] = std::byte{0}; }},
      {"option", [&](Bytes& b) { b[tcp + 20] ^= std::byte{1}; }},
      {"MAC", [&](Bytes& b) { b[6] ^= std::byte{1}; }},
      {"ECN or traffic class", [&](Bytes& b) { b[15] ^= GetParam() ? std::byte{0x03} : std::byte{0x30}; }},
      {"hop limit", [&](Bytes& b) { b[GetParam() ? 22 : 21] ^= std::byte{1}; }},
  };
  for (const auto& [name, change] : changes) {
    run_.clear();
    const Bytes first = segment(GetParam(), 0).bytes();
    ASSERT_TRUE(run_.add(first));
    Bytes other = next.bytes();
    change(other);
    wire::fill_checksums(other, wire::layout_of(other));
    EXPECT_FALSE(run_.add(other)) << name;
    EXPECT_EQ(run_.frames(), 1u);
    const Bytes good = next.bytes();
    EXPECT_TRUE(run_.add(good)) << "the run is unchanged by " << name;
  }
}

TEST_P(SegmentRunTest, AWrongChecksumIsForTheKernelToSee) {
  ASSERT_TRUE(add(segment(GetParam(), 0)));
  Bytes damaged = segment(GetParam(), 1).bytes();
  damaged.back() ^= std::byte{1};
  EXPECT_FALSE(run_.add(damaged));
  run_.clear();
  ASSERT_TRUE(run_.add(damaged));
  EXPECT_FALSE(add(segment(GetParam(), 2)));
  Bytes wanted(sizeof(VirtioNetHeader));
  wanted.insert(wanted.end(), damaged.begin(), damaged.end());
  EXPECT_EQ(written(run_), wanted) << "as it came";
}

TEST_P(SegmentRunTest, ALongerSegmentOrTooMuchBeginsAnotherRun) {
  ASSERT_TRUE(add(segment(GetParam(), 0)));
  EXPECT_FALSE(add(segment(GetParam(), 1, 1001)));
  run_.clear();
  std::uint32_t count = 0;
  while (add({.v4 = GetParam(), .payload = 8948, .sequence = count * 8948})) ++count;
  EXPECT_EQ(count, 7u) << "of 65,535 bytes";
  run_.clear();
  for (count = 0; add({.v4 = GetParam(), .payload = 1, .sequence = count}); ++count) continue;
  EXPECT_EQ(count, SegmentRun::kMostFrames);
}
INSTANTIATE_TEST_SUITE_P(Ip, SegmentRunTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "v4" : "v6"; });

TEST(SegmentRun, AcknowledgesPaddingAndOtherProtocolsPassAlone) {
  SegmentRun run;
  Bytes padded = TcpFrame{.v4 = true, .payload = 0}.bytes();
  padded.resize(90);
  const Bytes arp(60, std::byte{1}), tiny(3);
  for (const Bytes& frame : {padded, arp, tiny}) {
    run.clear();
    ASSERT_TRUE(run.add(frame));
    EXPECT_FALSE(run.add(frame));
    Bytes wanted(sizeof(VirtioNetHeader));
    wanted.insert(wanted.end(), frame.begin(), frame.end());
    EXPECT_EQ(written(run), wanted);
  }
}

TEST(SegmentRun, SurvivesRandomBytes) {
  std::mt19937_64 random(7);
  std::vector<Bytes> frames;
  SegmentRun run;
  for (int i = 0; i < 3000; ++i) {
    run.clear();
    frames.clear();
    frames.reserve(64);
    for (std::uint32_t n = 0; n < 60; ++n) {
      Bytes& frame = frames.emplace_back(segment(i % 2 == 0, n, 40).bytes());
      if (random() % 8 == 0) frame[random() % frame.size()] = static_cast<std::byte>(random());
      if (random() % 8 == 0) frame.resize(random() % frame.size());
      if (!run.add(frame)) break;
    }
    Bytes whole = written(run);
    ASSERT_LE(whole.size(), sizeof(VirtioNetHeader) + 14 + 65535);
    KernelFrame cut;
    if (run.frames() > 1) {
      ASSERT_TRUE(cut.assign(whole));
      ASSERT_EQ(cut.left(), run.frames());
    }
  }
}

}  // namespace
}  // namespace uroce::worker
