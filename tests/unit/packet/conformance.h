// One suite for every device: what net/device.h promises. A Rig makes the device whose own transmit comes back to
// its own receive (or whose peer's does), and brings frames round:
//
//   struct Rig { auto& sender(); auto& receiver(); wire::Mac to(); void settle(); };
//
// A device that does not carry all frames has a Rig with a type Frames, whose members are those of AnyFrames.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "base/frame.h"
#include "net/device.h"

namespace uroce::packet_test {

inline void fill(base::Frame& frame, const wire::Mac& to, std::uint32_t length, std::uint32_t number) {
  std::memset(frame.data, 0xa5, length);
  std::memcpy(frame.data, to.data(), to.size());
  std::memset(frame.data + 6, 0x02, 6);
  frame.data[12] = std::byte{0x88};  // the local experimental EtherType
  frame.data[13] = std::byte{0xb5};
  for (std::uint32_t i = 18; i < length; ++i) frame.data[i] = static_cast<std::byte>(number * 7 + i);
  std::memcpy(frame.data + 14, &number, sizeof(number));
  frame.length = length;
  frame.flags = 0;
}

inline std::uint32_t number_of(const base::Frame& frame) {
  std::uint32_t number = 0;
  std::memcpy(&number, frame.data + 14, sizeof(number));
  return number;
}

inline bool intact(const base::Frame& frame, std::uint32_t length) {
  if (frame.length != length) return false;
  const std::uint32_t number = number_of(frame);
  for (std::uint32_t i = 18; i < length; ++i) {
    if (frame.data[i] != static_cast<std::byte>(number * 7 + i)) return false;
  }
  return true;
}

/// Of the local experimental EtherType.
struct AnyFrames {
  static constexpr std::uint32_t kLeast = 60;  ///< bytes
  static void fill(base::Frame& frame, const wire::Mac& to, std::uint32_t length, std::uint32_t number) {
    packet_test::fill(frame, to, length, number);
  }
  /// Whether it is one of ours, and not the link's.
  static bool is_one(const base::Frame& frame) { return frame.length >= 18 && frame.data[12] == std::byte{0x88}; }
  static std::uint32_t number_of(const base::Frame& frame) { return packet_test::number_of(frame); }
  static bool intact(const base::Frame& frame, std::uint32_t length) { return packet_test::intact(frame, length); }
};

template <class Rig>
struct FramesOf {
  using Type = AnyFrames;
};
template <class Rig>
requires requires { typename Rig::Frames; }
struct FramesOf<Rig> {
  using Type = typename Rig::Frames;
};

template <class Rig>
class Conformance : public ::testing::Test {
 protected:
  using Frames = typename FramesOf<Rig>::Type;

  void SetUp() override { ASSERT_TRUE(rig_.ready()) << rig_.why(); }

  /// Sends frames `first` to `first + count`, receiving as it goes; what arrived, by number, in order.
  std::vector<std::uint32_t> exchange(std::uint32_t first, std::uint32_t count, std::uint32_t length) {
    std::vector<std::uint32_t> arrived;
    std::uint32_t sent = 0;
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (arrived.size() < count && std::chrono::steady_clock::now() < give_up) {
      if (sent < count) sent += send(first + sent, std::min(count - sent, 32u), length);
      base::Frame in[48];
      const std::size_t got = rig_.receiver().receive(in);
      for (const base::Frame& frame : std::span(in).first(got)) {
        if (!Frames::is_one(frame)) continue;
        EXPECT_TRUE(Frames::intact(frame, length));
        arrived.push_back(Frames::number_of(frame));
      }
      rig_.receiver().release(std::span(in).first(got));
    }
    return arrived;
  }

  std::uint32_t send(std::uint32_t first, std::uint32_t count, std::uint32_t length) {
    base::Frame out[32];
    const std::size_t have = rig_.sender().allocate(std::span(out).first(count));
    for (std::size_t i = 0; i < have; ++i)
      Frames::fill(out[i], rig_.to(), length, first + static_cast<std::uint32_t>(i));
    const std::size_t taken = rig_.sender().transmit(std::span(out).first(have));
    EXPECT_LE(taken, have);
    rig_.sender().discard(std::span(out).subspan(taken, have - taken));
    return static_cast<std::uint32_t>(taken);
  }

  Rig rig_;
};

TYPED_TEST_SUITE_P(Conformance);

TYPED_TEST_P(Conformance, frames_arrive_whole_and_in_order) {
  const std::vector<std::uint32_t> arrived = this->exchange(0, 1000, 200);
  ASSERT_EQ(arrived.size(), 1000u);
  EXPECT_TRUE(std::is_sorted(arrived.begin(), arrived.end()));
}

TYPED_TEST_P(Conformance, frames_of_all_sizes_up_to_the_mtu_arrive) {
  const std::uint32_t most = this->rig_.sender().info().mtu + 14;
  std::uint32_t number = 5000;
  for (const std::uint32_t length : {60u, 61u, 64u, 1514u, 4170u, most - 1, most}) {
    if (length > most || length < TestFixture::Frames::kLeast) continue;
    EXPECT_EQ(this->exchange(number, 40, length).size(), 40u) << length << " bytes";
    number += 100;
  }
}

TYPED_TEST_P(Conformance, an_empty_frame_holds_mtu_and_header) {
  base::Frame frame;
  ASSERT_EQ(this->rig_.sender().allocate(std::span(&frame, 1)), 1u);
  EXPECT_GE(frame.capacity, this->rig_.sender().info().mtu + 18);
  std::memset(frame.data, 0x5a, frame.capacity);
  this->rig_.sender().discard(std::span(&frame, 1));
}

TYPED_TEST_P(Conformance, buffers_never_run_out_while_they_are_given_back) {
  for (std::uint32_t round = 0; round < 300; ++round) {
    ASSERT_EQ(this->exchange(round * 64, 64, 100).size(), 64u) << "round " << round;
  }
}

TYPED_TEST_P(Conformance, allocate_yields_less_than_asked_when_buffers_are_out_and_recovers) {
  std::vector<base::Frame> all;
  for (base::Frame some[64]; all.size() < 100'000;) {
    const std::size_t got = this->rig_.sender().allocate(some);
    all.insert(all.end(), some, some + got);
    if (got == 0) break;
  }
  EXPECT_LT(all.size(), 100'000u);
  this->rig_.sender().discard(all);
  EXPECT_EQ(this->exchange(0, 100, 100).size(), 100u);
}

TYPED_TEST_P(Conformance, what_a_busy_port_does_not_take_can_be_offered_again) {
  std::uint32_t next = 0;
  std::vector<base::Frame> waiting(512);
  waiting.resize(this->rig_.sender().allocate(waiting));
  for (base::Frame& frame : waiting) TestFixture::Frames::fill(frame, this->rig_.to(), 100, next++);
  std::size_t arrived = 0;
  std::span<base::Frame> rest(waiting);
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (arrived < next && std::chrono::steady_clock::now() < give_up) {
    if (!rest.empty()) rest = rest.subspan(this->rig_.sender().transmit(rest));
    base::Frame in[7];
    const std::size_t got = this->rig_.receiver().receive(in);
    for (const base::Frame& frame : std::span(in).first(got)) {
      arrived += TestFixture::Frames::intact(frame, 100) ? 1 : 0;
    }
    this->rig_.receiver().release(std::span(in).first(got));
  }
  EXPECT_EQ(arrived, next);
  this->rig_.sender().discard(rest);
}

TYPED_TEST_P(Conformance, it_does_not_sleep_over_a_frame_that_is_there) {
  this->exchange(0, 10, 100);
  ASSERT_EQ(this->send(77, 1, 100), 1u);
  this->rig_.settle();
  EXPECT_FALSE(this->rig_.receiver().arm_wake());
  this->rig_.receiver().disarm_wake();
  const std::vector<std::uint32_t> arrived = this->exchange(78, 1, 100);
  ASSERT_FALSE(arrived.empty());
  EXPECT_EQ(arrived.front(), 77u) << "and the frame is not lost";
}

TYPED_TEST_P(Conformance, counters_count) {
  const net::DeviceCounters sent_before = this->rig_.sender().counters(),
                            got_before = this->rig_.receiver().counters();
  ASSERT_EQ(this->exchange(0, 100, 100).size(), 100u);
  const net::DeviceCounters sent = this->rig_.sender().counters(), got = this->rig_.receiver().counters();
  EXPECT_EQ(sent.tx_packets - sent_before.tx_packets, 100u);
  EXPECT_EQ(sent.tx_bytes - sent_before.tx_bytes, 10'000u);
  EXPECT_EQ(got.rx_packets - got_before.rx_packets, 100u);
  EXPECT_EQ(got.rx_bytes - got_before.rx_bytes, 10'000u);
}

REGISTER_TYPED_TEST_SUITE_P(Conformance, frames_arrive_whole_and_in_order, frames_of_all_sizes_up_to_the_mtu_arrive,
                            an_empty_frame_holds_mtu_and_header, buffers_never_run_out_while_they_are_given_back,
                            allocate_yields_less_than_asked_when_buffers_are_out_and_recovers,
                            what_a_busy_port_does_not_take_can_be_offered_again,
                            it_does_not_sleep_over_a_frame_that_is_there, counters_count);

}  // namespace uroce::packet_test
