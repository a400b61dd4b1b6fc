// LinkStack over hand-made frames: what it answers, what it believes, what it survives.
#include "net/link_stack.h"
#include "wire/bytes.h"
#include "wire/network_headers.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "net/link_impl.h"

namespace uroce::net {
namespace {

using Bytes = std::vector<std::byte>;

constexpr wire::Mac kOwnMac{0x02, 0, 0, 0, 0, 1}, kPeerMac{0x02, 0, 0, 0, 0, 2}, kOtherMac{0x02, 0, 0, 0, 0, 3};

wire::Address v4(unsigned a, unsigned b, unsigned c, unsigned d) {
  wire::Address address;
  address.bytes = {0,
                   0,
                   0,
                   0,
                   0,
                   0,
                   0,
                   0,
                   0,
                   0,
                   0xff,
                   0xff,
                   static_cast<std::uint8_t>(a),
                   static_cast<std::uint8_t>(b),
                   static_cast<std::uint8_t>(c),
                   static_cast<std::uint8_t>(d)};
  return address;
}
wire::Address v6(std::uint8_t last) {
  wire::Address address;
  address.bytes = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last};
  return address;
}

Bytes hex(std::string_view text) {
  Bytes bytes;
  int half = -1;
  for (const char c : text) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) continue;
    if (half < 0) {
      half = digit;
    } else {
      bytes.push_back(static_cast<std::byte>(half << 4 | digit));
      half = -1;
    }
  }
  return bytes;
}

std::string to_hex(const Bytes& bytes) {
  std::string text;
  for (const std::byte b : bytes) {
    text += "0123456789abcdef"[static_cast<unsigned>(b) >> 4];
    text += "0123456789abcdef"[static_cast<unsigned>(b) & 15];
  }
  return text;
}

class LinkStackTest : public ::testing::Test {
 protected:
  LinkStackTest() : stack_(config()) {
    stack_.advance(0);
    while (!next().empty()) {
    }
  }

  static LinkConfig config() {
    LinkConfig config;
    config.mac = kOwnMac;
    config.addresses = {{v4(192, 0, 2, 1), 24}, {v6(1), 64}};
    config.gateway4 = v4(192, 0, 2, 254);
    config.max_neighbours = 8;
    return config;
  }

  /// The next frame out; the buffer was full of 0xA5, so that a field that was not written shows.
  Bytes next() {
    Bytes buffer(2048, std::byte{0xa5});
    buffer.resize(stack_.next_frame(buffer));
    return buffer;
  }

  static Bytes arp(const wire::Mac& to, const wire::Mac& from, unsigned operation, const wire::Mac& sender_mac,
                   const wire::Address& sender, const wire::Address& target) {
    Bytes frame(60, std::byte{0});
    wire::store_mac(frame.data(), to);
    wire::store_mac(&frame[6], from);
    wire::store16(&frame[12], wire::kEtherTypeArp);
    wire::store16(&frame[14], 1);
    wire::store16(&frame[16], wire::kEtherTypeIpv4);
    wire::store8(&frame[18], 6);
    wire::store8(&frame[19], 4);
    wire::store16(&frame[20], operation);
    wire::store_mac(&frame[22], sender_mac);
    wire::store_ipv4(&frame[28], sender);
    wire::store_ipv4(&frame[38], target);
    return frame;
  }
  static Bytes arp_reply(const wire::Address& sender, const wire::Mac& mac) {
    return arp(kOwnMac, mac, 2, mac, sender, v4(192, 0, 2, 1));
  }

  static std::vector<Bytes> frames_of(LinkStack& stack) {
    std::vector<Bytes> all;
    for (Bytes buffer(2048, std::byte{0xa5}); const std::size_t bytes = stack.next_frame(buffer);) {
      all.emplace_back(buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(bytes));
    }
    return all;
  }

  Resolution resolve(const wire::Address& address, Nanos now) { return stack_.resolve(address, now, mac_); }

  LinkStack stack_;
  wire::Mac mac_{};
};

TEST_F(LinkStackTest, announces_its_addresses_when_it_starts) {
  LinkStack fresh(config());
  EXPECT_EQ(fresh.next_timeout(), 0u);
  fresh.advance(5);
  Bytes buffer(2048, std::byte{0xa5});
  buffer.resize(fresh.next_frame(buffer));
  EXPECT_EQ(to_hex(buffer), to_hex(hex("ffffffffffff 020000000001 0806 0001 0800 06 04 0001 020000000001 c0000201"
                                       "000000000000 c0000201 000000000000000000000000000000000000")));
  EXPECT_EQ(fresh.next_timeout(), kNever);
}

TEST_F(LinkStackTest, asks_whether_another_station_has_its_addresses) {
  LinkStack fresh(config());
  fresh.advance(5);
  const auto sent = frames_of(fresh);
  ASSERT_EQ(sent.size(), 4u);
  EXPECT_EQ(to_hex(sent[1]), to_hex(hex("ffffffffffff 020000000001 0806 0001 0800 06 04 0001 020000000001 00000000"
                                        "000000000000 c0000201 000000000000000000000000000000000000")));
  // From ::, to the solicited-node group of 2001:db8::1, without a link-layer address (RFC 4862, 5.4.2).
  EXPECT_EQ(to_hex(sent[3]), to_hex(hex("3333ff000001 020000000001 86dd 60000000 0018 3a ff"
                                        "00000000000000000000000000000000 ff0200000000000000000001ff000001"
                                        "8700 4ced 00000000 20010db8000000000000000000000001")));
  fresh.announce_all();
  EXPECT_EQ(fresh.next_timeout(), 0u);
  fresh.advance(6);
  EXPECT_EQ(frames_of(fresh), sent);
}

TEST_F(LinkStackTest, two_stations_with_the_same_addresses_learn_of_each_other) {
  LinkConfig theirs = config();
  theirs.mac = kPeerMac;
  LinkStack peer(theirs);
  peer.advance(5);
  for (int round = 0; round < 4; ++round) {
    for (const Bytes& frame : frames_of(peer)) stack_.receive(frame, 5);
    for (const Bytes& frame : frames_of(stack_)) peer.receive(frame, 5);
  }
  EXPECT_TRUE(frames_of(peer).empty() && frames_of(stack_).empty()) << "they do not quarrel for ever";
  for (auto [stack, other] : {std::pair(&stack_, kPeerMac), std::pair(&peer, kOwnMac)}) {
    std::vector<AddressConflict> found = stack->take_conflicts();
    ASSERT_EQ(found.size(), 2u);
    for (const AddressConflict& each : found) EXPECT_EQ(each.station, other);
    EXPECT_NE(found[0].address, found[1].address);
    EXPECT_TRUE(stack->take_conflicts().empty());
  }
}

TEST_F(LinkStackTest, a_station_that_only_answers_is_found) {
  // As Linux, which does not object to announcements.
  stack_.receive(arp(kOwnMac, kPeerMac, 2, kPeerMac, v4(192, 0, 2, 1), v4(0, 0, 0, 0)), 5 * kSecond);
  const auto found = stack_.take_conflicts();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].address, v4(192, 0, 2, 1));
  EXPECT_EQ(found[0].station, kPeerMac);
}

TEST_F(LinkStackTest, its_own_frames_are_no_conflict) {
  stack_.announce_all();
  stack_.advance(5);
  for (const Bytes& frame : frames_of(stack_)) stack_.receive(frame, 5);
  EXPECT_TRUE(stack_.take_conflicts().empty());
  EXPECT_EQ(stack_.counters().address_conflicts, 0u);
}

TEST_F(LinkStackTest, announces_more_addresses_than_its_queue_has_places) {
  constexpr unsigned kAddresses = 100;
  for (unsigned i = 0; i < kAddresses; ++i) stack_.add_address({v4(203, 0, 113, i + 1), 24});
  std::size_t sent = 0;
  while (stack_.next_timeout() == 0) {
    stack_.advance(5);
    sent += frames_of(stack_).size();
  }
  EXPECT_EQ(sent, 2 * kAddresses);
  EXPECT_EQ(stack_.counters().dropped, 0u);
}

TEST_F(LinkStackTest, answers_an_arp_request_and_remembers_who_asked) {
  stack_.receive(arp(wire::kBroadcastMac, kPeerMac, 1, kPeerMac, v4(192, 0, 2, 2), v4(192, 0, 2, 1)), 10);
  EXPECT_EQ(to_hex(next()), to_hex(hex("020000000002 020000000001 0806 0001 0800 06 04 0002 020000000001 c0000201"
                                       "020000000002 c0000202 000000000000000000000000000000000000")));
  EXPECT_EQ(resolve(v4(192, 0, 2, 2), 20), Resolution::kResolved);
  EXPECT_EQ(mac_, kPeerMac);
  EXPECT_TRUE(next().empty());
}

TEST_F(LinkStackTest, asks_for_an_unknown_neighbour_and_takes_the_answer) {
  EXPECT_EQ(resolve(v4(192, 0, 2, 7), 100), Resolution::kPending);
  EXPECT_EQ(to_hex(next()), to_hex(hex("ffffffffffff 020000000001 0806 0001 0800 06 04 0001 020000000001 c0000201"
                                       "000000000000 c0000207 000000000000000000000000000000000000")));
  EXPECT_EQ(resolve(v4(192, 0, 2, 7), 101), Resolution::kPending);
  EXPECT_TRUE(next().empty()) << "asked twice at once";
  EXPECT_FALSE(stack_.receive(arp_reply(v4(192, 0, 2, 7), kPeerMac), 200));
  EXPECT_EQ(resolve(v4(192, 0, 2, 7), 201), Resolution::kResolved);
  EXPECT_EQ(mac_, kPeerMac);
  EXPECT_EQ(stack_.next_timeout(), kNever);
}

TEST_F(LinkStackTest, gives_up_after_three_tries_a_second_apart_and_starts_afresh_a_second_later) {
  const wire::Address nobody = v4(192, 0, 2, 9);
  EXPECT_EQ(resolve(nobody, 0), Resolution::kPending);
  for (int i = 1; i <= 3; ++i) {
    EXPECT_FALSE(next().empty()) << i;
    EXPECT_TRUE(next().empty()) << i;
    EXPECT_EQ(stack_.next_timeout(), static_cast<Nanos>(i) * kSecond);
    stack_.advance(static_cast<Nanos>(i) * kSecond - 1);
    EXPECT_TRUE(next().empty()) << i;
    EXPECT_EQ(resolve(nobody, static_cast<Nanos>(i) * kSecond - 1), Resolution::kPending);
    stack_.advance(static_cast<Nanos>(i) * kSecond);
  }
  EXPECT_EQ(resolve(nobody, 3 * kSecond + 1), Resolution::kFailed);
  EXPECT_EQ(stack_.counters().unreachable, 1u);
  stack_.advance(4 * kSecond);
  EXPECT_EQ(resolve(nobody, 4 * kSecond), Resolution::kPending);
}

TEST_F(LinkStackTest, reports_once_that_a_pending_neighbour_answered_or_was_given_up) {
  stack_.take_resolved();
  EXPECT_EQ(resolve(v4(192, 0, 2, 7), 0), Resolution::kPending);
  EXPECT_EQ(resolve(v4(192, 0, 2, 9), 0), Resolution::kPending);
  stack_.advance(0);
  EXPECT_FALSE(stack_.take_resolved());
  stack_.receive(arp_reply(v4(192, 0, 2, 7), kPeerMac), 1);
  EXPECT_TRUE(stack_.take_resolved());
  EXPECT_FALSE(stack_.take_resolved());
  stack_.receive(arp_reply(v4(192, 0, 2, 7), kPeerMac), 2);
  EXPECT_FALSE(stack_.take_resolved()) << "it was known";
  for (int i = 1; i <= 2; ++i) stack_.advance(static_cast<Nanos>(i) * kSecond);
  EXPECT_FALSE(stack_.take_resolved());
  stack_.advance(3 * kSecond);
  EXPECT_TRUE(stack_.take_resolved());
}

TEST_F(LinkStackTest, reports_after_a_pause_that_a_full_table_may_have_dropped_a_pending_neighbour) {
  for (unsigned i = 0; i < 8; ++i) resolve(v4(192, 0, 2, 10 + i), i);
  stack_.take_resolved();
  resolve(v4(192, 0, 2, 99), 100);
  EXPECT_EQ(stack_.next_timeout(), 100 + kRecheckPause);
  stack_.advance(100 + kRecheckPause - 1);
  EXPECT_FALSE(stack_.take_resolved());
  stack_.advance(100 + kRecheckPause);
  EXPECT_TRUE(stack_.take_resolved());
}

TEST_F(LinkStackTest, learns_no_more_senders_of_requests_when_the_table_is_full) {
  const auto request_from = [&](unsigned last, Nanos now) {
    stack_.receive(arp(wire::kBroadcastMac, kPeerMac, 1, kPeerMac, v4(192, 0, 2, last), v4(192, 0, 2, 1)), now);
  };
  for (unsigned i = 0; i < 8; ++i) request_from(10 + i, i);
  for (unsigned i = 0; i < 100; ++i) request_from(100 + i, 100 + i);
  for (unsigned i = 0; i < 8; ++i) EXPECT_EQ(resolve(v4(192, 0, 2, 10 + i), 300), Resolution::kResolved) << i;
}

TEST_F(LinkStackTest, sends_far_destinations_through_the_gateway_and_knows_when_there_is_none) {
  EXPECT_EQ(resolve(v4(198, 51, 100, 1), 0), Resolution::kPending);
  EXPECT_EQ(to_hex(next()).substr(76, 8), "c00002fe") << "the gateway is asked for";
  wire::Address far = v6(1);
  far.bytes[5] = 9;
  EXPECT_EQ(resolve(far, 0), Resolution::kNoRoute);
}

TEST_F(LinkStackTest, resolves_own_multicast_and_broadcast_addresses_at_once) {
  EXPECT_EQ(resolve(v4(192, 0, 2, 1), 0), Resolution::kResolved);
  EXPECT_EQ(mac_, kOwnMac);
  EXPECT_EQ(resolve(v4(192, 0, 2, 255), 0), Resolution::kResolved);
  EXPECT_EQ(mac_, wire::kBroadcastMac);
  EXPECT_EQ(resolve(v4(239, 129, 2, 3), 0), Resolution::kResolved);
  EXPECT_EQ(mac_, (wire::Mac{0x01, 0, 0x5e, 1, 2, 3}));
}

TEST_F(LinkStackTest, takes_no_answer_that_nobody_asked_for) {
  stack_.receive(arp_reply(v4(192, 0, 2, 66), kOtherMac), 5);
  stack_.receive(arp(wire::kBroadcastMac, kOtherMac, 1, kOtherMac, v4(192, 0, 2, 67), v4(192, 0, 2, 67)), 5);
  EXPECT_EQ(stack_.neighbours(), 0u);
  EXPECT_EQ(resolve(v4(192, 0, 2, 66), 6), Resolution::kPending);
}

TEST_F(LinkStackTest, an_announcement_moves_a_known_neighbour) {
  resolve(v4(192, 0, 2, 7), 0);
  stack_.receive(arp_reply(v4(192, 0, 2, 7), kPeerMac), 1);
  stack_.receive(arp(wire::kBroadcastMac, kOtherMac, 1, kOtherMac, v4(192, 0, 2, 7), v4(192, 0, 2, 7)), 2);
  EXPECT_EQ(resolve(v4(192, 0, 2, 7), 3), Resolution::kResolved);
  EXPECT_EQ(mac_, kOtherMac);
}

TEST_F(LinkStackTest, nobody_takes_our_own_address_from_us) {
  stack_.receive(arp(wire::kBroadcastMac, kOtherMac, 1, kOtherMac, v4(192, 0, 2, 1), v4(192, 0, 2, 1)),
                 5 * kSecond);
  EXPECT_EQ(stack_.counters().address_conflicts, 1u);
  EXPECT_FALSE(next().empty()) << "it is defended";
  stack_.receive(arp(wire::kBroadcastMac, kOtherMac, 1, kOtherMac, v4(192, 0, 2, 1), v4(192, 0, 2, 1)),
                 5 * kSecond + 1);
  EXPECT_TRUE(next().empty()) << "but not in a storm";
  EXPECT_EQ(resolve(v4(192, 0, 2, 1), 6 * kSecond), Resolution::kResolved);
  EXPECT_EQ(mac_, kOwnMac);
}

TEST_F(LinkStackTest, forged_senders_are_not_believed) {
  resolve(v4(192, 0, 2, 7), 0);
  next();
  const wire::Address asked = v4(192, 0, 2, 7);
  stack_.receive(arp(kOwnMac, kOtherMac, 2, kPeerMac, asked, v4(192, 0, 2, 1)), 1);  // frame and ARP disagree
  stack_.receive(arp(kOwnMac, wire::kBroadcastMac, 2, wire::kBroadcastMac, asked, v4(192, 0, 2, 1)),
                 1);                                                              // from a group
  stack_.receive(arp(kOwnMac, kOwnMac, 2, kOwnMac, asked, v4(192, 0, 2, 1)), 1);  // from ourselves
  EXPECT_EQ(resolve(asked, 2), Resolution::kPending);
  stack_.receive(arp(kOwnMac, kOtherMac, 1, kOtherMac, v4(198, 51, 100, 9), v4(192, 0, 2, 1)), 3);
  EXPECT_EQ(stack_.neighbours(), 1u) << "an address outside our prefixes is not learnt";
}

TEST_F(LinkStackTest, a_flood_of_strangers_does_not_push_out_neighbours_in_use) {
  resolve(v4(192, 0, 2, 7), 0);
  stack_.receive(arp_reply(v4(192, 0, 2, 7), kPeerMac), 1);
  for (unsigned i = 10; i < 200; ++i) {
    stack_.receive(arp(wire::kBroadcastMac, kOtherMac, 1, kOtherMac, v4(192, 0, 2, i), v4(192, 0, 2, 1)), 1000 + i);
  }
  EXPECT_EQ(stack_.neighbours(), 8u);
  EXPECT_EQ(resolve(v4(192, 0, 2, 7), 5000), Resolution::kResolved);
}

TEST_F(LinkStackTest, checks_an_old_neighbour_again_while_it_goes_on_using_it) {
  resolve(v4(192, 0, 2, 7), 0);
  stack_.receive(arp_reply(v4(192, 0, 2, 7), kPeerMac), 0);
  next();
  EXPECT_EQ(resolve(v4(192, 0, 2, 7), 31 * kSecond), Resolution::kResolved);
  const Bytes asked = next();
  ASSERT_GE(asked.size(), 6u);
  EXPECT_EQ(wire::load_mac(asked.data()), kPeerMac) << "it alone is asked";
}

/// An ICMP echo request of `bytes` of data, checksums good.
Bytes echo4(std::size_t bytes) {
  Bytes frame(14 + 20 + 8 + bytes);
  wire::store_mac(frame.data(), kOwnMac);
  wire::store_mac(&frame[6], kPeerMac);
  wire::store16(&frame[12], wire::kEtherTypeIpv4);
  std::byte* ip = &frame[14];
  wire::store8(ip, 0x45);
  wire::store16(ip + 2, static_cast<unsigned>(28 + bytes));
  wire::store16(ip + 4, 0x1234);
  wire::store8(ip + 8, 61);
  wire::store8(ip + 9, wire::kProtocolIcmp);
  wire::store_ipv4(ip + 12, v4(192, 0, 2, 2));
  wire::store_ipv4(ip + 16, v4(192, 0, 2, 1));
  wire::store16(ip + 10, wire::internet_checksum({ip, 20}));
  std::byte* icmp = ip + 20;
  wire::store8(icmp, 8);
  wire::store16(icmp + 4, 0x0102);
  wire::store16(icmp + 6, 0x0304);
  for (std::size_t i = 0; i < bytes; ++i) icmp[8 + i] = static_cast<std::byte>(i);
  wire::store16(icmp + 2, wire::internet_checksum({icmp, 8 + bytes}));
  return frame;
}

TEST_F(LinkStackTest, answers_ping) {
  EXPECT_TRUE(stack_.receive(echo4(3), 0));
  EXPECT_EQ(to_hex(next()), to_hex(hex("020000000002 020000000001 0800 4500001f00004000 4001b6da c0000201 c0000202"
                                       "0000 f9f8 0102 0304 000102 000000000000000000000000000000")));
  EXPECT_EQ(stack_.counters().echo_requests, 1u);
}

TEST_F(LinkStackTest, answers_no_ping_that_is_damaged_truncated_or_for_others) {
  for (std::size_t cut = 0; cut < 45; ++cut) {
    Bytes frame = echo4(3);
    frame.resize(cut);
    stack_.receive(frame, 0);
  }
  for (std::size_t at = 14; at < 45; ++at) {
    Bytes frame = echo4(3);
    frame[at] ^= std::byte{0x10};
    stack_.receive(frame, 0);
  }
  EXPECT_TRUE(next().empty());
}

TEST_F(LinkStackTest, answers_ping_of_exactly_the_mtu_and_no_more) {
  stack_.receive(echo4(1472), 0);
  EXPECT_EQ(next().size(), 1514u);
  stack_.receive(echo4(1473), 0);
  EXPECT_TRUE(next().empty());
}

TEST_F(LinkStackTest, solicits_and_takes_an_advertisement) {
  EXPECT_EQ(resolve(v6(2), 0), Resolution::kPending);
  const Bytes asked = next();
  EXPECT_EQ(to_hex(asked),
            to_hex(hex("3333ff000002 020000000001 86dd 60000000 0020 3a ff 20010db8000000000000000000000001"
                       "ff0200000000000000000001ff000002 87 00 1c27 00000000 20010db8000000000000000000000002"
                       "01 01 020000000001")))
      << "and its checksum";
  LinkStack peer([] {
    LinkConfig config = LinkStackTest::config();
    config.mac = kPeerMac;
    config.addresses = {{v6(2), 64}};
    return config;
  }());
  peer.receive(asked, 1);
  Bytes answer(2048);
  answer.resize(peer.next_frame(answer));
  stack_.receive(answer, 2);
  EXPECT_EQ(resolve(v6(2), 3), Resolution::kResolved);
  EXPECT_EQ(mac_, kPeerMac);
  EXPECT_EQ(peer.neighbours(), 1u) << "the peer has learnt us from the question";
}

/// An advertisement of v6(2) for us without its address, as Linux answers a solicitation that went to it alone.
Bytes bare_advertisement(unsigned flags) {
  Bytes frame =
      hex("020000000001 020000000002 86dd 60000000 0018 3a ff 20010db8000000000000000000000002"
          "20010db8000000000000000000000001 88 00 0000 00000000 20010db8000000000000000000000002");
  wire::store_mac(&frame[6], kPeerMac);
  wire::store8(&frame[58], flags);
  wire::store16(&frame[56],
                wire::internet_checksum({&frame[54], 24}, wire::ones_complement_sum({&frame[22], 32}, 24 + 58)));
  return frame;
}

/// The same with it.
Bytes full_advertisement() {
  Bytes frame = bare_advertisement(0x40);
  const Bytes option = hex("02 01 020000000002");
  frame.insert(frame.end(), option.begin(), option.end());
  wire::store_mac(&frame[80], kPeerMac);
  wire::store16(&frame[18], 32);
  wire::store16(&frame[56], 0);
  wire::store16(&frame[56],
                wire::internet_checksum({&frame[54], 32}, wire::ones_complement_sum({&frame[22], 32}, 32 + 58)));
  return frame;
}

TEST_F(LinkStackTest, a_solicited_answer_without_an_address_confirms_the_one_we_have) {
  resolve(v6(2), 0);
  next();
  stack_.receive(bare_advertisement(0x40), 0);
  EXPECT_EQ(resolve(v6(2), 0), Resolution::kPending) << "which address would that be?";
  stack_.receive(full_advertisement(), 0);
  for (Nanos now = 31 * kSecond; now < 400 * kSecond; now += 31 * kSecond) {
    ASSERT_EQ(resolve(v6(2), now), Resolution::kResolved) << now / kSecond;
    ASSERT_FALSE(next().empty()) << "it is asked again";
    stack_.receive(bare_advertisement(0x40), now);
    stack_.advance(now + 5 * kSecond);
    ASSERT_TRUE(next().empty()) << "no second try";
  }
  EXPECT_EQ(stack_.counters().unreachable, 0u);
}

TEST_F(LinkStackTest, an_unsolicited_advertisement_without_an_address_confirms_nothing) {
  resolve(v6(2), 0);
  next();
  stack_.receive(full_advertisement(), 0);
  resolve(v6(2), 31 * kSecond);
  next();
  stack_.receive(bare_advertisement(0), 31 * kSecond);
  stack_.advance(36 * kSecond);
  EXPECT_FALSE(next().empty()) << "a second try";
}

/// A frame with an 802.1Q tag.
Bytes tagged(Bytes frame, unsigned tci) {
  Bytes tag(4);
  wire::store16(tag.data(), wire::kEtherTypeVlan);
  wire::store16(&tag[2], tci);
  frame.insert(frame.begin() + 12, tag.begin(), tag.end());
  return frame;
}

TEST_F(LinkStackTest, a_vlan_is_a_link_of_its_own) {
  InterfaceAddress own{v4(198, 51, 100, 1), 24};
  own.vlan = 5;
  stack_.add_address(own);
  stack_.advance(0);
  const Bytes announced = next();
  ASSERT_GE(announced.size(), 46u);
  EXPECT_EQ(wire::load16(&announced[12]), wire::kEtherTypeVlan);
  EXPECT_EQ(wire::load16(&announced[14]), 5);
  EXPECT_EQ(wire::load16(&announced[16]), wire::kEtherTypeArp);
  next();

  const auto ask = arp(wire::kBroadcastMac, kPeerMac, 1, kPeerMac, v4(198, 51, 100, 7), v4(198, 51, 100, 1));
  stack_.receive(ask, 0);
  stack_.receive(tagged(ask, 6), 0);
  EXPECT_TRUE(next().empty()) << "not without the tag, nor with another";
  wire::Mac mac{};
  EXPECT_EQ(stack_.resolve(v4(198, 51, 100, 7), 0, mac, 0), Resolution::kPending) << "by the gateway";
  next();
  stack_.receive(tagged(ask, 3 << 13 | 5), 0);
  const Bytes answer = next();
  ASSERT_GE(answer.size(), 46u);
  EXPECT_EQ(wire::load16(&answer[14]), 5);
  EXPECT_EQ(stack_.resolve(v4(198, 51, 100, 7), 0, mac, 5), Resolution::kResolved);
  EXPECT_EQ(mac, kPeerMac);
  EXPECT_EQ(stack_.resolve(v4(192, 0, 2, 7), 0, mac, 5), Resolution::kNoRoute);
  EXPECT_EQ(stack_.resolve(v4(198, 51, 100, 7), 0, mac, 6), Resolution::kNoRoute) << "no such VLAN here";
}

TEST_F(LinkStackTest, the_kernel_answers_for_addresses_that_it_has_too) {
  stack_.advance(0);
  while (!next().empty()) continue;
  const auto ask = arp(wire::kBroadcastMac, kPeerMac, 1, kPeerMac, v4(192, 0, 2, 7), v4(192, 0, 2, 1));
  EXPECT_TRUE(stack_.receive(ask, 0)) << "answered";
  EXPECT_FALSE(next().empty());
  const wire::Address shared[] = {v4(192, 0, 2, 1)};
  stack_.leave_to_kernel(shared);
  EXPECT_FALSE(
      stack_.receive(arp(wire::kBroadcastMac, kPeerMac, 1, kPeerMac, v4(192, 0, 2, 8), v4(192, 0, 2, 1)), 0));
  EXPECT_TRUE(next().empty());
  wire::Mac mac{};
  EXPECT_EQ(stack_.resolve(v4(192, 0, 2, 8), 0, mac), Resolution::kResolved) << "learnt all the same";
  // Another claims it: for the kernel to settle.
  EXPECT_FALSE(
      stack_.receive(arp(wire::kBroadcastMac, kPeerMac, 1, kPeerMac, v4(192, 0, 2, 1), v4(192, 0, 2, 1)), 0));
  EXPECT_TRUE(next().empty());
  EXPECT_EQ(stack_.counters().address_conflicts, 1u);
  stack_.leave_to_kernel({});
  stack_.receive(ask, 0);
  EXPECT_FALSE(next().empty());
}

TEST_F(LinkStackTest, ignores_discovery_that_came_through_a_router) {
  resolve(v6(2), 0);
  Bytes question = next();
  question[14 + 7] = std::byte{254};  // a hop limit below 255
  LinkConfig config = LinkStackTest::config();
  config.addresses = {{v6(2), 64}};
  config.mac = kPeerMac;
  LinkStack peer(config);
  peer.receive(question, 1);
  Bytes answer(2048);
  EXPECT_EQ(peer.next_frame(answer), 0u);
  EXPECT_EQ(peer.counters().malformed, 1u);
}

TEST_F(LinkStackTest, survives_random_and_mutated_frames) {
  std::mt19937_64 random(7);
  Bytes out(4096);
  resolve(v6(2), 0);
  const Bytes seeds[] = {echo4(64), next(),
                         arp(wire::kBroadcastMac, kPeerMac, 1, kPeerMac, v4(192, 0, 2, 2), v4(192, 0, 2, 1))};
  for (int round = 0; round < 50'000; ++round) {
    Bytes frame = seeds[random() % 3];
    for (std::uint64_t i = random() % 6; i != 0 && !frame.empty(); --i)
      frame[random() % frame.size()] = static_cast<std::byte>(random());
    if (random() % 3 == 0) frame.resize(random() % (frame.size() + 1));
    // A heap block of exactly this size: the sanitizers see each byte beyond it.
    stack_.receive(Bytes(frame), static_cast<Nanos>(round) * kMillisecond);
    stack_.advance(static_cast<Nanos>(round) * kMillisecond);
    while (stack_.next_frame(out) != 0) {
    }
  }
  EXPECT_LE(stack_.neighbours(), 8u);
}

TEST_F(LinkStackTest, the_output_queue_is_bounded) {
  for (int i = 0; i < 1000; ++i) stack_.receive(echo4(8), 0);
  int frames = 0;
  while (!next().empty()) ++frames;
  EXPECT_EQ(frames, 64);
  EXPECT_EQ(stack_.counters().dropped, 936u);
}

TEST_F(LinkStackTest, addresses_come_and_go_while_it_runs) {
  stack_.add_address({v4(203, 0, 113, 1), 24});
  EXPECT_TRUE(stack_.is_local(v4(203, 0, 113, 1)));
  stack_.advance(1);
  EXPECT_FALSE(next().empty()) << "it is announced";
  stack_.remove_address(v4(203, 0, 113, 1));
  EXPECT_FALSE(stack_.is_local(v4(203, 0, 113, 1)));
}

}  // namespace
}  // namespace uroce::net
