// Multicast groups as the link sees them: IGMPv3 and MLDv2 reports, answers to queriers, older queriers.
#include "net/membership.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "net/link_stack.h"
#include "wire/bytes.h"
#include "wire/network_headers.h"

namespace uroce::net {
namespace {

using Bytes = std::vector<std::byte>;

constexpr wire::Mac kOwnMac{0x02, 0, 0, 0, 0, 1}, kRouterMac{0x02, 0, 0, 0, 0, 0xfe};

wire::Address v4(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d) {
  wire::Address address;
  address.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d};
  return address;
}
wire::Address v6(std::uint8_t first, std::uint8_t second, std::uint8_t last) {
  wire::Address address;
  address.bytes = {first, second, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last};
  return address;
}

std::string to_hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte b : bytes) {
    text += "0123456789abcdef"[static_cast<unsigned>(b) >> 4];
    text += "0123456789abcdef"[static_cast<unsigned>(b) & 15];
  }
  return text;
}

class MembershipTest : public ::testing::Test {
 protected:
  MembershipTest() : stack_(config()) { drain(0); }
  static LinkConfig config() {
    LinkConfig config;
    config.mac = kOwnMac;
    config.addresses = {{v4(192, 0, 2, 1), 24}, {v6(0xfe, 0x80, 1), 64}};
    return config;
  }
  /// All frames that are due at `now`.
  std::vector<Bytes> drain(Nanos now) {
    std::vector<Bytes> frames;
    stack_.advance(now);
    for (;;) {
      Bytes frame(2048);
      frame.resize(stack_.next_frame(frame));
      if (frame.empty()) return frames;
      frames.push_back(std::move(frame));
    }
  }
  /// An IGMP query: 8 bytes are version 2, 12 version 3.
  static Bytes igmp_query(std::size_t bytes, const wire::Address* group, std::uint8_t time) {
    Bytes frame(60, std::byte{0});
    wire::store_mac(frame.data(), {0x01, 0, 0x5e, 0, 0, 1});
    wire::store_mac(&frame[6], kRouterMac);
    wire::store16(&frame[12], wire::kEtherTypeIpv4);
    std::byte* ip = &frame[14];
    wire::store16(ip, 0x46c0);
    wire::store16(ip + 2, static_cast<unsigned>(24 + bytes));
    wire::store8(ip + 8, 1);
    wire::store8(ip + 9, 2);
    wire::store_ipv4(ip + 12, v4(192, 0, 2, 254));
    wire::store_ipv4(ip + 16, v4(224, 0, 0, 1));
    wire::store16(ip + 20, 0x9404);
    wire::store16(ip + 10, wire::internet_checksum({ip, 24}));
    wire::store8(ip + 24, 0x11);
    wire::store8(ip + 25, time);
    if (group != nullptr) wire::store_ipv4(ip + 28, *group);
    wire::store16(ip + 26, wire::internet_checksum({ip + 24, bytes}));
    return frame;
  }
  static Bytes mld_query(std::size_t bytes, unsigned time_ms) {
    Bytes frame(14 + 40 + 8 + bytes, std::byte{0});
    wire::store_mac(frame.data(), {0x33, 0x33, 0, 0, 0, 1});
    wire::store_mac(&frame[6], kRouterMac);
    wire::store16(&frame[12], wire::kEtherTypeIpv6);
    std::byte* ip = &frame[14];
    wire::store8(ip, 0x60);
    wire::store16(ip + 4, static_cast<unsigned>(8 + bytes));
    wire::store8(ip + 7, 1);
    wire::store_ipv6(ip + 8, v6(0xfe, 0x80, 0xfe));
    wire::store_ipv6(ip + 24, v6(0xff, 0x02, 1));
    wire::store8(ip + 40, 58);
    wire::store16(ip + 42, 0x0502);
    wire::store16(ip + 46, 0x0100);
    std::byte* mld = ip + 48;
    wire::store8(mld, 130);
    wire::store16(mld + 4, time_ms);
    wire::store16(mld + 2,
                  wire::internet_checksum({mld, bytes}, wire::ones_complement_sum(
                                                            {ip + 8, 32}, static_cast<std::uint32_t>(bytes) + 58)));
    return frame;
  }

  LinkStack stack_;
  const wire::Address group4_ = v4(239, 1, 2, 3), group6_ = v6(0xff, 0x0e, 0x77);
};

TEST_F(MembershipTest, reports_a_new_group_twice_and_that_it_left) {
  stack_.join(group4_, 0);
  EXPECT_EQ(stack_.next_timeout(), 0u);
  auto frames = drain(0);
  ASSERT_EQ(frames.size(), 1u);
  // To 224.0.0.22 with a router alert: one record, CHANGE_TO_EXCLUDE with no sources.
  EXPECT_EQ(to_hex(std::span(frames[0]).first(54)),
            "01005e000016"
            "020000000001"
            "0800"
            "46c0002800004000010241f8c0000201e0000016"
            "94040000"
            "2200e8f90000000104000000ef010203");
  EXPECT_EQ(stack_.next_timeout(), kSecond);
  EXPECT_EQ(drain(kSecond).size(), 1u);
  EXPECT_EQ(stack_.next_timeout(), kNever);
  stack_.leave(group4_, 2 * kSecond);
  frames = drain(2 * kSecond);
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(static_cast<unsigned>(frames[0][46]), 3u);
  EXPECT_EQ(stack_.counters().group_reports, 3u);
}

TEST_F(MembershipTest, reports_an_ipv6_group_to_all_mldv2_routers) {
  stack_.join(group6_, 0);
  const auto frames = drain(0);
  ASSERT_EQ(frames.size(), 1u);
  const Bytes& frame = frames[0];
  ASSERT_EQ(frame.size(), 14u + 40 + 8 + 28);
  EXPECT_EQ(to_hex(std::span(frame).first(6)), "333300000016");
  EXPECT_EQ(wire::load_ipv6(&frame[14 + 8]), v6(0xfe, 0x80, 1));
  EXPECT_EQ(wire::load_ipv6(&frame[14 + 24]), v6(0xff, 0x02, 22));
  EXPECT_EQ(to_hex(std::span(frame).subspan(54, 8)), "3a00050200000100");
  EXPECT_EQ(static_cast<unsigned>(frame[62]), 143u);
  EXPECT_EQ(static_cast<unsigned>(frame[70]), 4u);
  EXPECT_EQ(wire::load_ipv6(&frame[74]), group6_);
  EXPECT_EQ(wire::ones_complement_sum({&frame[62], 28}, wire::ones_complement_sum({&frame[14 + 8], 32}, 28 + 58)),
            0xffffu);
}

TEST_F(MembershipTest, answers_a_querier_within_the_time_it_gives) {
  stack_.join(group4_, 0);
  stack_.join(group6_, 0);
  drain(0);
  drain(kSecond);
  const Nanos asked = 10 * kSecond;
  stack_.receive(igmp_query(12, nullptr, 100), asked);
  EXPECT_LE(stack_.next_timeout(), asked + 10 * kSecond);
  auto frames = drain(asked + 10 * kSecond);
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(static_cast<unsigned>(frames[0][46]), 2u);  // MODE_IS_EXCLUDE
  stack_.receive(mld_query(28, 1000), asked);
  EXPECT_EQ(drain(asked + kSecond).size(), 1u);
  // One for a group we are not in gets nothing.
  const wire::Address other = v4(239, 9, 9, 9);
  stack_.receive(igmp_query(12, &other, 10), asked);
  EXPECT_TRUE(drain(asked + 20 * kSecond).empty());
}

TEST_F(MembershipTest, speaks_version_2_and_mld_1_where_the_querier_does) {
  stack_.receive(igmp_query(8, nullptr, 100), 0);
  stack_.receive(mld_query(24, 1000), 0);
  stack_.join(group4_, kSecond);
  stack_.join(group6_, kSecond);
  auto frames = drain(kSecond);
  ASSERT_EQ(frames.size(), 2u);
  for (const Bytes& frame : frames) {
    const bool is_v4 = wire::load16(&frame[12]) == wire::kEtherTypeIpv4;
    EXPECT_EQ(wire::load8(&frame[is_v4 ? 38 : 62]), is_v4 ? 0x16 : 131);
    if (is_v4) {
      EXPECT_EQ(wire::load_ipv4(&frame[30]), group4_);
    }
  }
  stack_.leave(group4_, 3 * kSecond);
  frames = drain(3 * kSecond);
  ASSERT_FALSE(frames.empty());
  EXPECT_EQ(wire::load8(&frames[0][38]), 0x17);
  EXPECT_EQ(wire::load_ipv4(&frames[0][30]), v4(224, 0, 0, 2));
  // It is forgotten after a while.
  stack_.join(group4_, 400 * kSecond);
  frames = drain(400 * kSecond);
  ASSERT_FALSE(frames.empty());
  EXPECT_EQ(wire::load8(&frames.back()[38]), 0x22);
}

TEST_F(MembershipTest, says_nothing_of_groups_that_all_are_in) {
  stack_.join(v4(224, 0, 0, 1), 0);
  stack_.join(v6(0xff, 0x02, 1), 0);
  stack_.join(v6(0xff, 0x01, 7), 0);
  EXPECT_TRUE(drain(0).empty());
}

TEST_F(MembershipTest, drops_queries_that_are_broken) {
  stack_.join(group4_, 0);
  drain(0);
  drain(kSecond);
  const Bytes good = igmp_query(8, nullptr, 1);
  for (std::size_t i = 14; i < 14 + 32; ++i) {
    Bytes bad = good;
    bad[i] ^= std::byte{0x21};
    stack_.receive(bad, 2 * kSecond);
  }
  for (std::size_t size = 0; size < 46; ++size) stack_.receive(std::span(good).first(size), 2 * kSecond);
  EXPECT_TRUE(drain(60 * kSecond).empty());
}

TEST_F(MembershipTest, thousands_of_groups_are_told_bit_by_bit) {
  constexpr unsigned kGroups = 1000;
  for (unsigned i = 0; i < kGroups; ++i) {
    stack_.join(v4(239, 0, static_cast<std::uint8_t>(i >> 8), static_cast<std::uint8_t>(i)), 0);
  }
  std::size_t told = 0;
  for (int i = 0; i < 100 && told < kGroups; ++i) told += drain(0).size();
  EXPECT_EQ(told, kGroups);
  EXPECT_EQ(stack_.counters().dropped, 0u);
}

}  // namespace
}  // namespace uroce::net
