// What parse() takes and why it refuses, and what emit() writes.
#include "wire/packet.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <random>

#include "packets.h"
#include "wire/dump.h"

namespace uroce::wire {
namespace {

using testing::build;
using testing::Bytes;
using testing::kSendOnlyRc;
using testing::path;

ParseVerdict verdict_of(const Bytes& frame, ParseOptions options = {}) {
  // Of exactly its size, so that a sanitizer sees any access outside.
  const auto exact = std::make_unique<std::byte[]>(frame.size());
  std::copy(frame.begin(), frame.end(), exact.get());
  RxPacket packet;
  return parse({exact.get(), frame.size()}, options, packet);
}

constexpr std::size_t kIp = 14, kUdp4 = 34, kBth4 = 42;

struct Malformed {
  const char* what;
  ParseVerdict verdict;
  std::function<void(Bytes&)> spoil;
  bool sign = true;  ///< with a right ICRC, so that only the defect counts
};

void fix_sum(Bytes& frame) {
  auto ip = Ipv4Header::parse(&frame[kIp]);
  ip.checksum = ip.right_checksum();
  ip.emit(&frame[kIp]);
}
void set_total(Bytes& frame, int delta) {
  store16(&frame[kIp + 2], static_cast<std::uint16_t>(load16(&frame[kIp + 2]) + delta));
  fix_sum(frame);
}
void set_udp(Bytes& frame, int delta) {
  store16(&frame[kUdp4 + 4], static_cast<std::uint16_t>(load16(&frame[kUdp4 + 4]) + delta));
}
void set_ip_byte(Bytes& frame, std::size_t at, int value) {
  frame[kIp + at] = static_cast<std::byte>(value);
  fix_sum(frame);
}

TEST(Parse, EachDefectHasItsReason) {
  using V = ParseVerdict;
  const Malformed cases[] = {
      {"nothing", V::kTruncated, [](Bytes& f) { f.clear(); }, false},
      {"half an Ethernet header", V::kTruncated, [](Bytes& f) { f.resize(13); }, false},
      {"no IP header", V::kTruncated, [](Bytes& f) { f.resize(20); }, false},
      {"no UDP header", V::kTruncated, [](Bytes& f) { f.resize(40); }, false},
      {"cut in the payload", V::kTruncated, [](Bytes& f) { f.erase(f.end() - 8, f.end()); }, false},
      {"ARP", V::kNotRoce, [](Bytes& f) { store16(&f[12], kEtherTypeArp); }},
      {"ICMP", V::kNotRoce, [](Bytes& f) { set_ip_byte(f, 9, 1); }},
      {"another port", V::kNotRoce, [](Bytes& f) { store16(&f[kUdp4 + 2], 4790); }},
      {"IP version 5", V::kBadIpHeader, [](Bytes& f) { set_ip_byte(f, 0, 0x55); }},
      {"header of 16 bytes", V::kBadIpHeader, [](Bytes& f) { set_ip_byte(f, 0, 0x44); }},
      {"later fragment", V::kNotRoce, [](Bytes& f) { set_ip_byte(f, 7, 1); }},
      {"first fragment", V::kBadIpHeader, [](Bytes& f) { set_ip_byte(f, 6, 0x20); }},
      {"checksum", V::kBadIpHeader, [](Bytes& f) { f[kIp + 10] ^= std::byte{1}; }},
      {"total length below UDP", V::kBadIpHeader, [](Bytes& f) { set_total(f, 27 - load16(&f[kIp + 2])); }, false},
      {"UDP length too small", V::kBadUdpLength, [](Bytes& f) { set_udp(f, -4); }},
      {"UDP length too large", V::kBadUdpLength, [](Bytes& f) { set_udp(f, 4); }, false},
      {"UDP length 0", V::kBadUdpLength, [](Bytes& f) { store16(&f[kUdp4 + 4], 0); }, false},
      {"unknown opcode", V::kUnknownOpcode, [](Bytes& f) { f[kBth4] = std::byte{0x35}; }},
      {"opcode of a service that is none", V::kUnknownOpcode, [](Bytes& f) { f[kBth4] = std::byte{0xe4}; }},
      {"transport version 1", V::kBadTransportVersion, [](Bytes& f) { f[kBth4 + 1] |= std::byte{1}; }},
      {"no room for BTH and ICRC", V::kBadLength, [](Bytes& f) { set_total(f, -56), set_udp(f, -56); }, false},
      {"no room for the extended headers", V::kBadLength,
       [](Bytes& f) { set_total(f, -60 + 12), set_udp(f, -60 + 12), f[kBth4] = std::byte{0x12}; }, false},
      {"payload on an acknowledge", V::kBadLength, [](Bytes& f) { f[kBth4] = std::byte{0x11}; }},
      {"more pad than payload", V::kBadPad,
       [](Bytes& f) { set_total(f, -52), set_udp(f, -52), f[kBth4 + 1] |= std::byte{0x30}; }, false},
      {"payload and pad no multiple of four", V::kBadPad, [](Bytes& f) { set_total(f, -1), set_udp(f, -1); }},
      {"a wrong bit", V::kBadIcrc, [](Bytes& f) { f[60] ^= std::byte{4}; }, false},
      {"a wrong ICRC", V::kBadIcrc, [](Bytes& f) { f.back() ^= std::byte{0x80}; }, false},
  };
  std::array<int, static_cast<std::size_t>(V::kCount)> seen{};
  for (const Malformed& malformed : cases) {
    Bytes frame = build(path(), kSendOnlyRc, 52);
    ASSERT_EQ(verdict_of(frame), V::kOk);
    malformed.spoil(frame);
    if (malformed.sign) testing::sign(frame, kIp, 20);
    EXPECT_EQ(parse_verdict_name(verdict_of(frame)), parse_verdict_name(malformed.verdict)) << malformed.what;
    ++seen[static_cast<std::size_t>(malformed.verdict)];
  }
  for (std::size_t v = 1; v < seen.size(); ++v) {
    EXPECT_GT(seen[v], 0) << parse_verdict_name(static_cast<V>(v));
  }
}

TEST(Parse, EachOpcodeIsJudgedWithinFramesOfEachLength) {
  // With a right ICRC and right lengths of the network headers, but for the transport's.
  for (int opcode = 0; opcode < 256; ++opcode) {
    for (std::size_t bytes = 0; bytes <= 64; bytes += 4) {  // from the BTH to the ICRC
      Bytes frame = build(path(), kSendOnlyRc, 64);
      const int delta = static_cast<int>(kBth4 + bytes) - static_cast<int>(frame.size());
      set_total(frame, delta);
      set_udp(frame, delta);
      if (bytes != 0) frame[kBth4] = static_cast<std::byte>(opcode);
      frame.resize(kBth4 + bytes);
      if (bytes >= 16) testing::sign(frame, kIp, 20);
      const auto exact = std::make_unique<std::byte[]>(frame.size());
      std::copy(frame.begin(), frame.end(), exact.get());
      RxPacket packet;
      const ParseVerdict verdict = parse({exact.get(), frame.size()}, {}, packet);
      const OpcodeInfo& info = kOpcodes[static_cast<std::size_t>(opcode)];
      const std::size_t least = info.header_bytes + 4u;
      const bool fits = info.known() && (info.has(kHasPayload) ? bytes >= least : bytes == least);
      // The responder refuses these.
      const bool rc_request = opcode < 0x20 && bytes >= 16 && (!info.known() || info.has(kRequest));
      if (!fits && !rc_request) {
        EXPECT_NE(verdict, ParseVerdict::kOk) << opcode << ", " << bytes << " bytes";
      } else if (verdict == ParseVerdict::kOk) {
        EXPECT_EQ(packet.info, fits ? &info : &kInvalidRcRequest) << opcode << ", " << bytes << " bytes";
        EXPECT_EQ(packet.info->header_bytes + packet.payload_bytes + packet.bth.pad + 4u, bytes) << opcode;
      }
    }
  }
}

TEST(Parse, DefersTheIcrcOfWritesAndReadsAfterTheirFirstPacket) {
  constexpr std::uint8_t kSendMiddle = 0x01, kWriteFirst = 0x06, kWriteMiddle = 0x07, kWriteLast = 0x08,
                         kReadFirst = 0x0d, kReadMiddle = 0x0e, kReadLast = 0x0f, kUcWriteMiddle = 0x27;
  constexpr ParseOptions kDefer{.defer_icrc = true};
  for (const bool v6 : {false, true}) {
    for (const std::uint8_t opcode :
         {kSendMiddle, kWriteFirst, kWriteMiddle, kWriteLast, kReadFirst, kReadMiddle, kReadLast, kUcWriteMiddle}) {
      Bytes frame = build(path(v6), opcode, 1024);
      RxPacket packet;
      const bool write = opcode == kWriteMiddle || opcode == kWriteLast;
      const bool deferred = write || opcode == kReadMiddle || opcode == kReadLast;
      EXPECT_EQ(parse(frame, kDefer, packet), deferred ? ParseVerdict::kIcrcPending : ParseVerdict::kOk)
          << int{opcode};
      EXPECT_EQ(packet.state, deferred ? PacketState::kIcrcPending : PacketState::kVerified) << int{opcode};
      frame[200] ^= std::byte{1};
      EXPECT_EQ(parse(frame, kDefer, packet), deferred ? ParseVerdict::kIcrcPending : ParseVerdict::kBadIcrc)
          << int{opcode};
      EXPECT_EQ(parse(frame, {}, packet), ParseVerdict::kBadIcrc);
    }
  }
}

TEST(Parse, DoesNotDeferTheIcrcOfPacketsToAGroup) {
  for (const bool v6 : {false, true}) {
    PathAddress to_group = path(v6);
    to_group.dest.bytes[v6 ? 0 : 12] = v6 ? 0xff : 0xef;
    Bytes frame = build(to_group, 0x07, 1024);
    RxPacket packet;
    EXPECT_EQ(parse(frame, {.defer_icrc = true}, packet), ParseVerdict::kOk);
    frame[200] ^= std::byte{1};
    EXPECT_EQ(parse(frame, {.defer_icrc = true}, packet), ParseVerdict::kBadIcrc);
  }
}

TEST(Parse, APendingIcrcIsCheckedAloneOrWhileThePayloadIsPlaced) {
  constexpr std::byte kBefore{0xee};
  for (const int which : {0, 1, 2, 3}) {
    const bool v6 = which % 2 != 0;
    const std::ptrdiff_t held = which / 2 * 64;
    Bytes frame = build(path(v6), 0x07, 1024);
    RxPacket packet;
    for (const std::size_t spoilt : {std::size_t{0}, kIp + 15, frame.size() - 500, frame.size() - 1}) {
      if (spoilt != 0) frame[spoilt] ^= std::byte{1};
      const ParseVerdict expected = spoilt == 0 ? ParseVerdict::kOk : ParseVerdict::kBadIcrc;
      ASSERT_EQ(parse(frame, {.check_ip_checksum = false, .defer_icrc = true}, packet), ParseVerdict::kIcrcPending);
      RxPacket again = packet;
      EXPECT_EQ(verify_icrc(packet), expected) << spoilt;
      EXPECT_EQ(packet.icrc_pending(), spoilt != 0);
      EXPECT_FALSE(packet.placed());
      Bytes to(1024, kBefore);
      EXPECT_EQ(place_payload(again, to.data(), static_cast<std::size_t>(held)), expected) << spoilt;
      EXPECT_EQ(again.placed(), spoilt == 0);
      if (spoilt == 0) {
        EXPECT_TRUE(std::equal(to.begin(), to.end(), packet.payload));
        continue;
      }
      EXPECT_EQ(std::count(to.end() - held, to.end(), kBefore), held) << spoilt;
      frame[spoilt] ^= std::byte{1};
    }
  }
}

TEST(Parse, EachDefectOfIpv6HasItsReason) {
  using V = ParseVerdict;
  const auto after = [](const std::function<void(Bytes&)>& spoil) {
    Bytes frame = build(path(true), kSendOnlyRc, 52);
    EXPECT_EQ(verdict_of(frame), V::kOk);
    spoil(frame);
    return verdict_of(frame);
  };
  EXPECT_EQ(after([](Bytes& f) { f.resize(14 + 39); }), V::kTruncated);
  EXPECT_EQ(after([](Bytes& f) { f.resize(14 + 47); }), V::kTruncated);
  EXPECT_EQ(after([](Bytes& f) { f.pop_back(); }), V::kTruncated);
  EXPECT_EQ(after([](Bytes& f) { f[kIp + 6] = std::byte{58}; }), V::kNotRoce);
  EXPECT_EQ(after([](Bytes& f) { f[kIp + 6] = std::byte{44}; }), V::kNotRoce) << "extension headers";
  EXPECT_EQ(after([](Bytes& f) { f[kIp] = std::byte{0x45}; }), V::kBadIpHeader);
  EXPECT_EQ(after([](Bytes& f) { store16(&f[kIp + 4], 7); }), V::kBadIpHeader);
  EXPECT_EQ(after([](Bytes& f) { store16(&f[kIp + 44], 9); }), V::kBadUdpLength);
  EXPECT_EQ(after([](Bytes& f) { f[kIp + 39] ^= std::byte{1}; }), V::kBadIcrc) << "addresses are covered";
  EXPECT_EQ(after([](Bytes& f) { f[kIp + 1] ^= std::byte{0xff}; }), V::kOk) << "class and flow are not";
  EXPECT_EQ(after([](Bytes& f) { f[kIp + 7] = std::byte{1}; }), V::kOk) << "hop limit is not";
}

TEST(Parse, OptionsOfIpv4AreRefused) {
  Bytes frame = build(path(), kSendOnlyRc, 52);
  frame.insert(frame.begin() + kUdp4, 4, std::byte{1});
  frame[kIp] = std::byte{0x46};
  store16(&frame[kIp + 2], static_cast<std::uint16_t>(load16(&frame[kIp + 2]) + 4));
  EXPECT_EQ(verdict_of(frame), ParseVerdict::kBadIpHeader);
}

TEST(Parse, ChecksThatAPortHasDoneCanBeLeftOut) {
  Bytes frame = build(path(), kSendOnlyRc, 52);
  frame[kIp + 10] ^= std::byte{1};
  EXPECT_EQ(verdict_of(frame), ParseVerdict::kBadIpHeader);
  EXPECT_EQ(verdict_of(frame, {.check_ip_checksum = false}), ParseVerdict::kOk);
  frame = build(path(), kSendOnlyRc, 52);
  frame.back() ^= std::byte{1};
  EXPECT_EQ(verdict_of(frame, {.check_icrc = false}), ParseVerdict::kOk);
}

TEST(Parse, EthernetPaddingIsNotThePackets) {
  Bytes frame = build(path(), opcode(Service::kRc, Operation::kAcknowledge), 0);
  frame.insert(frame.end(), 18, std::byte{0xcc});
  RxPacket packet;
  EXPECT_EQ(parse(frame, {}, packet), ParseVerdict::kOk);
  EXPECT_EQ(packet.payload_bytes, 0u);
}

TEST(Parse, OneOrTwoTagsAreReadAndAThirdIsNot) {
  Bytes frame = build(path(false, 0x6064), kSendOnlyRc, 10);
  RxPacket packet;
  ASSERT_EQ(parse(frame, {}, packet), ParseVerdict::kOk);
  EXPECT_EQ(packet.vlan, 0x6064);
  const std::array outer = {std::byte{0x88}, std::byte{0xa8}, std::byte{0}, std::byte{9}};
  frame.insert(frame.begin() + 12, outer.begin(), outer.end());
  ASSERT_EQ(parse(frame, {}, packet), ParseVerdict::kOk);
  EXPECT_EQ(packet.vlan, 0x6064) << "the customer's tag";
  frame.insert(frame.begin() + 12, outer.begin(), outer.end());
  EXPECT_EQ(parse(frame, {}, packet), ParseVerdict::kNotRoce);
  frame.resize(16);
  EXPECT_EQ(verdict_of(frame), ParseVerdict::kTruncated);
}

TEST(Parse, SaysWhoSentItWhereToAndHowItFared) {
  for (const bool v6 : {false, true}) {
    PathAddress address = path(v6);
    address.ecn = kCongestionExperienced;
    RxPacket packet;
    Bytes frame = build(address, kSendOnlyRc, 5);
    ASSERT_EQ(parse(frame, {}, packet), ParseVerdict::kOk);
    EXPECT_EQ(packet.source(), address.source);
    EXPECT_EQ(packet.destination(), address.dest);
    EXPECT_EQ(packet.source_mac, address.source_mac);
    EXPECT_EQ(packet.ip_bytes, v6 ? 40 : 20);
    EXPECT_EQ(packet.bth.pad, 3);
    EXPECT_TRUE(packet.ce);
    EXPECT_FALSE(packet.multicast);
    address.ecn = kEct0;
    if (v6)
      address.dest.bytes[0] = 0xff;
    else
      address.dest = testing::v4(224, 0, 0, 1);
    frame = build(address, kSendOnlyRc, 5);
    ASSERT_EQ(parse(frame, {}, packet), ParseVerdict::kOk);
    EXPECT_FALSE(packet.ce);
    EXPECT_TRUE(packet.multicast);
  }
}

// Any prefix and any mutation: no access outside (the sanitizers watch), and what is accepted is consistent.
TEST(Parse, MutatedFramesAreRefusedOrConsistent) {
  std::mt19937 random(11);
  const Bytes originals[] = {build(path(), kSendOnlyRc, 61), build(path(true, 7), kSendOnlyRc, 64),
                             build(path(), 0x13, 0), build(path(), kCnpOpcode, 0)};
  for (const Bytes& original : originals) {
    for (std::size_t length = 0; length < original.size(); ++length) {
      EXPECT_NE(verdict_of(Bytes(original.begin(), original.begin() + static_cast<std::ptrdiff_t>(length))),
                ParseVerdict::kOk);
    }
    for (int round = 0; round < 20'000; ++round) {
      Bytes frame = original;
      for (unsigned i = 0; i <= random() % 4; ++i)
        frame[random() % frame.size()] = static_cast<std::byte>(random());
      frame.resize(frame.size() - random() % 3);
      const auto exact = std::make_unique<std::byte[]>(frame.size());
      std::copy(frame.begin(), frame.end(), exact.get());
      RxPacket packet;
      if (parse({exact.get(), frame.size()}, {.check_icrc = false}, packet) != ParseVerdict::kOk) continue;
      ASSERT_LE(packet.payload + packet.payload_bytes + packet.bth.pad + kIcrcBytes, exact.get() + frame.size());
      ASSERT_GE(packet.payload, packet.bth_start + packet.info->header_bytes);
    }
  }
}

TEST(FrameTemplate, WritesItsHeadersAndNothingElse) {
  for (const bool v6 : {false, true}) {
    for (const bool tagged : {false, true}) {
      for (const bool offload : {false, true}) {
        const auto vlan = tagged ? std::optional<std::uint16_t>(0x2005) : std::nullopt;
        const FrameTemplate frame(path(v6, vlan));
        PathAddress marked = path(v6, vlan);
        marked.traffic_class |= 1;  // not the program's to set
        marked.ecn = kEct0;
        const FrameTemplate capable(marked);
        ASSERT_EQ(frame.header_bytes(), 14u + (tagged ? 4 : 0) + (v6 ? 40 : 20) + 8);
        ASSERT_EQ(frame.ip_bytes(), v6 ? 40u : 20u);
        for (const std::size_t ib_bytes : {16u, 80u, 300u, 4200u, 9000u}) {
          Bytes out(frame.header_bytes() + 8, std::byte{0xa5});
          EXPECT_EQ(frame.emit(out.data(), ib_bytes, offload), frame.header_bytes());
          Bytes other(out.size(), std::byte{0xa5});
          EXPECT_EQ(capable.emit_not_ect(other.data(), ib_bytes, offload), frame.header_bytes());
          EXPECT_EQ(other, out);
          capable.emit(other.data(), ib_bytes, offload);
          const std::byte* other_ip = &other[frame.ip_offset()];
          EXPECT_EQ(v6 ? Ipv6Header::parse(other_ip).traffic_class : Ipv4Header::parse(other_ip).traffic_class,
                    0x6a);
          for (std::size_t i = frame.header_bytes(); i < out.size(); ++i) EXPECT_EQ(out[i], std::byte{0xa5});
          const std::byte* ip = &out[frame.ip_offset()];
          if (v6) {
            const auto header = Ipv6Header::parse(ip);
            EXPECT_EQ(header.payload_length, ib_bytes + 8);
            EXPECT_EQ(header.flow_label, 0xabcdeu);
            EXPECT_EQ(header.traffic_class, 0x68);
            EXPECT_EQ(header.hop_limit, 63);
          } else {
            const auto header = Ipv4Header::parse(ip);
            EXPECT_EQ(header.total_length, ib_bytes + 28);
            EXPECT_EQ(header.checksum, offload ? 0 : header.right_checksum());
            EXPECT_EQ(header.identification, 0);
            EXPECT_EQ(header.fragment, 0x4000);
            EXPECT_EQ(header.ttl, 63);
          }
          const auto udp = UdpHeader::parse(ip + frame.ip_bytes());
          EXPECT_EQ(udp, (UdpHeader{0xc123, kRoceUdpPort, static_cast<std::uint16_t>(ib_bytes + 8), 0}));
          if (tagged) {
            EXPECT_EQ(VlanTag::parse(&out[14]).tci, 0x2005);
          }
        }
      }
    }
  }
}

// The incremental sum at its edges: every total length of a frame, with headers that sum to all kinds of values.
TEST(FrameTemplate, ChecksumsAreRightForEveryLength) {
  std::mt19937 random(12);
  for (int round = 0; round < 40; ++round) {
    PathAddress address = path();
    for (int i = 12; i < 16; ++i) {
      address.source.bytes[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(round == 0 ? 0xff : random());
      address.dest.bytes[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(round == 0 ? 0xff : random());
    }
    const FrameTemplate frame(address);
    std::array<std::byte, 64> out;
    for (std::size_t ib_bytes = 16; ib_bytes < 9'000; ib_bytes += 7) {
      frame.emit(out.data(), ib_bytes);
      const auto ip = Ipv4Header::parse(&out[14]);
      ASSERT_EQ(ip.checksum, ip.right_checksum()) << ib_bytes;
    }
  }
}

TEST(SourcePort, SpreadsFlowsOverTheDynamicPorts) {
  // rdma-core's rdma_flow_label_to_udp_sport and rdma_calc_flow_label.
  EXPECT_EQ(source_port(1, Qpn{}, Qpn{}), 0xc001);
  EXPECT_EQ(source_port(0xfffff, Qpn{}, Qpn{}), 0xc000 | (0x3fff ^ 0x3f));
  EXPECT_EQ(source_port(0, Qpn{17}, Qpn{17}), 0xc000 | 289);
  EXPECT_EQ(source_port(0, Qpn{5}, Qpn{9}), source_port(0, Qpn{9}, Qpn{5})) << "both ways alike";
  for (std::uint32_t i = 0; i < 1000; ++i) EXPECT_GE(source_port(0, Qpn{i * 7919}, Qpn{i * 104729}), 0xc000);
}

}  // namespace
}  // namespace uroce::wire
