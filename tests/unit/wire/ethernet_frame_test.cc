#include "wire/ethernet_frame.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>

#include "packets.h"

namespace uroce::wire {
namespace {

using testing::Bytes;

/// A frame written layer by layer; lengths are right and checksums 0 unless a test changes them.
struct Spec {
  bool v6 = false;
  std::optional<std::uint16_t> vlan;
  std::vector<std::pair<std::uint8_t, Bytes>> extensions;  ///< IPv6: number, header without its first byte
  std::size_t ip_options = 0;                              ///< IPv4: bytes
  std::uint16_t fragment = 0x4000;                         ///< IPv4: flags and offset
  std::uint8_t protocol = kProtocolTcp;
  std::size_t tcp_options = 0;  ///< bytes
  std::size_t payload = 10;
  std::size_t padding = 0;  ///< behind the datagram
};

Bytes transport_of(const Spec& spec) {
  Bytes out;
  if (spec.protocol == kProtocolTcp) {
    out.resize(20 + spec.tcp_options);
    store16(&out[0], 1000);
    store16(&out[2], 2000);
    store32(&out[4], 0xfffffff0);
    store8(&out[12], static_cast<std::uint8_t>((out.size() / 4) << 4));
    store8(&out[13], 0xff);
  } else if (spec.protocol == kProtocolUdp) {
    out.resize(8);
    UdpHeader{1000, 2000, static_cast<std::uint16_t>(8 + spec.payload), 0}.emit(out.data());
  }
  for (std::size_t i = 0; i < spec.payload; ++i) out.push_back(static_cast<std::byte>(3 * i + 1));
  return out;
}

Bytes build(const Spec& spec) {
  Bytes frame(14 + (spec.vlan ? 4 : 0));
  const std::uint16_t type = spec.v6 ? kEtherTypeIpv6 : kEtherTypeIpv4;
  EthernetHeader{{2, 0, 0, 0, 0, 2}, {2, 0, 0, 0, 0, 1}, spec.vlan ? kEtherTypeVlan : type}.emit(frame.data());
  if (spec.vlan) VlanTag{*spec.vlan, type}.emit(&frame[14]);
  const Bytes inner = transport_of(spec);
  const std::size_t ip = frame.size();
  Bytes extensions;
  for (std::size_t i = 0; i < spec.extensions.size(); ++i) {
    const bool last = i + 1 == spec.extensions.size();
    extensions.push_back(static_cast<std::byte>(last ? spec.protocol : spec.extensions[i + 1].first));
    extensions.insert(extensions.end(), spec.extensions[i].second.begin(), spec.extensions[i].second.end());
  }
  if (spec.v6) {
    Ipv6Header header;
    header.next_header = spec.extensions.empty() ? spec.protocol : spec.extensions[0].first;
    header.payload_length = static_cast<std::uint16_t>(extensions.size() + inner.size());
    header.source = {0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
    header.dest = {0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};
    frame.resize(ip + 40);
    header.emit(&frame[ip]);
    frame.insert(frame.end(), extensions.begin(), extensions.end());
  } else {
    Ipv4Header header;
    header.header_words = static_cast<std::uint8_t>(5 + spec.ip_options / 4);
    header.total_length = static_cast<std::uint16_t>(20 + spec.ip_options + inner.size());
    header.identification = 0xffff;
    header.fragment = spec.fragment;
    header.protocol = spec.protocol;
    header.source = {192, 0, 2, 1};
    header.dest = {192, 0, 2, 2};
    frame.resize(ip + 20 + spec.ip_options, std::byte{1});
    header.emit(&frame[ip]);
  }
  frame.insert(frame.end(), inner.begin(), inner.end());
  frame.resize(frame.size() + spec.padding, std::byte{0xee});
  return frame;
}

/// RFC 1071 by the letter: 16-bit words, the carries added.
std::uint16_t plain_sum(std::span<const std::byte> bytes, std::uint32_t sum = 0) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    sum += static_cast<std::uint32_t>(bytes[i]) << (i % 2 == 0 ? 8 : 0);
    sum = (sum & 0xffff) + (sum >> 16);
  }
  return static_cast<std::uint16_t>(sum);
}
std::uint16_t plain_transport_sum(const Bytes& frame, const Spec& spec, const FrameLayout& layout) {
  const std::size_t bytes = frame.size() - spec.padding - layout.transport;
  const std::span<const std::byte> addresses =
      std::span(frame).subspan(layout.network + (spec.v6 ? 8u : 12u), spec.v6 ? 32 : 8);
  const std::uint16_t pseudo = plain_sum(addresses, static_cast<std::uint32_t>(bytes) + spec.protocol);
  return plain_sum(std::span(frame).subspan(layout.transport, bytes), pseudo);
}

const Bytes kNoOptions(7);  // what follows the first byte of an extension header of 8 bytes, or of a fragment's
Bytes fragment_header(std::uint16_t place) {
  Bytes header(7);
  store16(&header[1], place);
  return header;
}

TEST(EthernetFrameTest, layers_of_whole_datagrams) {
  for (const bool v6 : {false, true}) {
    for (const bool vlan : {false, true}) {
      for (const std::uint8_t protocol : {kProtocolTcp, kProtocolUdp}) {
        Spec spec{.v6 = v6, .protocol = protocol, .tcp_options = 12, .padding = 3};
        if (vlan) spec.vlan = 0xa123;
        const FrameLayout layout = layout_of(build(spec));
        EXPECT_EQ(layout.vlan, vlan);
        EXPECT_EQ(layout.vlan_tci, vlan ? 0xa123 : 0);
        EXPECT_EQ(layout.ipv4, !v6);
        EXPECT_EQ(layout.ipv6, v6);
        EXPECT_EQ(layout.tcp, protocol == kProtocolTcp);
        EXPECT_EQ(layout.udp, protocol == kProtocolUdp);
        EXPECT_FALSE(layout.fragment);
        EXPECT_EQ(layout.protocol, protocol);
        EXPECT_EQ(layout.network, vlan ? 18 : 14);
        EXPECT_EQ(layout.transport, layout.network + (v6 ? 40 : 20));
        EXPECT_EQ(layout.payload, layout.transport + (protocol == kProtocolTcp ? 32 : 8));
      }
    }
  }
}

TEST(EthernetFrameTest, options_and_extension_headers_are_walked_over) {
  const FrameLayout with_options = layout_of(build({.ip_options = 40, .protocol = kProtocolUdp}));
  EXPECT_EQ(with_options.transport, 14 + 60);

  Bytes long_options(15);
  long_options[0] = std::byte{1};  // 16 bytes
  const Spec spec{.v6 = true,
                  .extensions = {{0, kNoOptions}, {60, long_options}, {43, kNoOptions}, {44, kNoOptions}}};
  const FrameLayout layout = layout_of(build(spec));
  EXPECT_TRUE(layout.tcp);
  EXPECT_FALSE(layout.fragment) << "a fragment that is all of its datagram (RFC 6946)";
  EXPECT_EQ(layout.protocol, kProtocolTcp);
  EXPECT_EQ(layout.transport, 14 + 40 + 8 + 16 + 8 + 8);
}

TEST(EthernetFrameTest, only_a_first_fragment_has_ports) {
  for (const bool v6 : {false, true}) {
    for (const bool first : {false, true}) {
      Spec spec{
          .v6 = v6, .fragment = static_cast<std::uint16_t>(first ? 0x2000 : 0x0003), .protocol = kProtocolUdp};
      if (v6) spec.extensions = {{44, fragment_header(first ? 1 : 3 << 3)}};
      const FrameLayout found = layout_of(build(spec));
      EXPECT_TRUE(found.fragment);
      EXPECT_EQ(found.udp, first);
      EXPECT_EQ(found.protocol, kProtocolUdp);
      EXPECT_EQ(found.transport != 0, first);
    }
  }
}

TEST(EthernetFrameTest, what_cannot_be_walked_over_ends_the_walk) {
  Bytes segments_left(7);
  segments_left[2] = std::byte{1};
  for (const auto& [number, body] : {std::pair{43, segments_left}, {50, kNoOptions}, {59, kNoOptions}}) {
    const auto extension = static_cast<std::uint8_t>(number);
    const FrameLayout layout = layout_of(build({.v6 = true, .extensions = {{0, kNoOptions}, {extension, body}}}));
    EXPECT_TRUE(layout.ipv6);
    EXPECT_EQ(layout.protocol, number);
    EXPECT_FALSE(layout.tcp);
  }
}

TEST(EthernetFrameTest, two_tags_are_walked_over) {
  Bytes frame = build({.vlan = 5});
  const auto push_tag = [&frame](std::uint16_t tci) {
    Bytes tag(4);
    store16(tag.data(), kEtherTypeServiceVlan);
    store16(tag.data() + 2, tci);
    frame.insert(frame.begin() + 12, tag.begin(), tag.end());
    return layout_of(frame);
  };
  const FrameLayout one = layout_of(frame), two = push_tag(7), three = push_tag(9);
  EXPECT_EQ(one.ether_type, 16);
  EXPECT_EQ(two.ether_type, 20);
  EXPECT_EQ(two.network, one.network + 4);
  EXPECT_EQ(two.vlan_tci, 7);
  EXPECT_TRUE(three.vlan);
  EXPECT_EQ(three.network, 0);
  frame.resize(18);
  EXPECT_EQ(layout_of(frame).ether_type, 16) << "the second tag is cut off";
}

TEST(EthernetFrameTest, lengths_that_lie_leave_the_layers_but_no_checksums) {
  const Bytes v4 = build({.protocol = kProtocolUdp, .padding = 2});
  Bytes v6 = build({.v6 = true});
  fill_checksums(v6, layout_of(v6));
  const auto changed16 = [](Bytes frame, std::size_t at, int by) {
    store16(&frame[at], static_cast<std::uint16_t>(load16(&frame[at]) + by));
    const FrameLayout layout = layout_of(frame);
    EXPECT_TRUE(layout.udp || layout.tcp);
    const Bytes before = frame;
    fill_checksums(frame, layout);
    EXPECT_TRUE(std::equal(before.begin() + layout.transport, before.end(), frame.begin() + layout.transport) ||
                checksums_good(frame, layout));
    return checksums_good(frame, layout);
  };
  EXPECT_TRUE(changed16(v4, 16, 2)) << "the padding is in the datagram then";
  EXPECT_FALSE(changed16(v4, 16, 3));
  EXPECT_FALSE(changed16(v6, 18, 1));
  EXPECT_TRUE(changed16(v6, 18, 0));
  EXPECT_TRUE(changed16(v4, 14 + 20 + 4, 0));
  EXPECT_FALSE(changed16(v4, 14 + 20 + 4, 1)) << "UDP longer than its datagram";
  EXPECT_FALSE(changed16(v4, 14 + 20 + 4, -11)) << "UDP shorter than its header";
}

TEST(EthernetFrameTest, padding_is_no_header) {
  for (const std::uint16_t length : {0, 19, 20, 27}) {
    Bytes frame = build({.protocol = kProtocolUdp});
    store16(&frame[16], length);
    EXPECT_TRUE(layout_of(frame).ipv4);
    EXPECT_FALSE(layout_of(frame).udp) << length;
    EXPECT_TRUE(layout_of_headers(frame).udp);
  }
  Bytes v6 = build({.v6 = true, .extensions = {{60, kNoOptions}}});
  store16(&v6[18], 27);
  EXPECT_EQ(layout_of(v6).protocol, kProtocolTcp);
  EXPECT_FALSE(layout_of(v6).tcp);
}

TEST(EthernetFrameTest, a_header_that_cannot_be_is_absent) {
  Bytes tcp = build({.payload = 0});
  for (const unsigned words : {0u, 4u, 6u}) {
    store8(&tcp[14 + 20 + 12], static_cast<std::uint8_t>(words << 4));
    EXPECT_FALSE(layout_of(tcp).tcp) << words;
  }
  Bytes header = build({});
  for (const unsigned first : {0x44u, 0x65u, 0x4fu}) {
    store8(&header[14], static_cast<std::uint8_t>(first));
    EXPECT_FALSE(layout_of(header).ipv4) << first;
  }
}

TEST(EthernetFrameTest, no_beginning_of_a_frame_is_read_behind_its_end) {
  const Spec specs[] = {{.vlan = 5, .ip_options = 8, .tcp_options = 8},
                        {.v6 = true, .extensions = {{0, kNoOptions}, {44, kNoOptions}}, .protocol = kProtocolUdp}};
  for (const Spec& spec : specs) {
    const Bytes whole = build(spec);
    for (std::size_t bytes = 0; bytes <= whole.size(); ++bytes) {
      Bytes frame(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes));
      for (const FrameLayout& layout : {layout_of(frame), layout_of_headers(frame), layout_of(whole)}) {
        const bool good = checksums_good(frame, layout);
        fill_checksums(frame, layout);
        EXPECT_TRUE(bytes == whole.size() || !good);
      }
      EXPECT_EQ(layout_of(frame).transport != 0, bytes >= layout_of(whole).payload);
    }
  }
  const Bytes huge(70'000, std::byte{0xff});
  EXPECT_EQ(layout_of(huge).network, 0);
}

TEST(EthernetFrameTest, checksums_are_those_of_the_plain_sum) {
  for (const bool v6 : {false, true}) {
    for (const std::uint8_t protocol : {kProtocolTcp, kProtocolUdp}) {
      for (const std::size_t payload : {0u, 1u, 2u, 3u, 64u, 1400u, 1401u, 9001u}) {
        Spec spec{.v6 = v6, .ip_options = v6 ? 0u : 8u, .protocol = protocol, .payload = payload, .padding = 5};
        if (v6) spec.extensions = {{60, kNoOptions}};
        Bytes frame = build(spec);
        const FrameLayout layout = layout_of(frame);
        EXPECT_FALSE(checksums_good(frame, layout) && protocol == kProtocolTcp);
        fill_checksums(frame, layout);
        EXPECT_TRUE(checksums_good(frame, layout));
        EXPECT_EQ(plain_transport_sum(frame, spec, layout), 0xffff);
        if (!v6) {
          EXPECT_EQ(plain_sum(std::span(frame).subspan(14, 28)), 0xffff);
        }
        EXPECT_TRUE(std::all_of(frame.end() - 5, frame.end(), [](std::byte b) { return b == std::byte{0xee}; }));
        if (payload == 0) continue;
        frame[frame.size() - 6] ^= std::byte{0x10};
        EXPECT_FALSE(checksums_good(frame, layout));
      }
    }
  }
}

TEST(EthernetFrameTest, an_ipv4_header_from_the_literature) {
  const std::uint8_t header[] = {0x45, 0, 0,   0x73, 0, 0, 0x40, 0,   0x40, 0x11,
                                 0,    0, 192, 168,  0, 1, 192,  168, 0,    199};
  Bytes frame(14 + 0x73);
  store16(&frame[12], kEtherTypeIpv4);
  std::memcpy(&frame[14], header, sizeof header);
  fill_checksums(frame, layout_of(frame));
  EXPECT_EQ(load16(&frame[24]), 0xb861);
}

TEST(EthernetFrameTest, a_udp_checksum_of_0_means_none_over_ipv4_only) {
  for (const bool v6 : {false, true}) {
    Spec spec{.v6 = v6, .protocol = kProtocolUdp, .payload = 2};
    Bytes frame = build(spec);
    const FrameLayout layout = layout_of(frame);
    fill_checksums(frame, layout);
    const std::size_t checksum = layout.transport + 6u, payload = layout.payload;
    // A payload that makes the sum 0xffff, whose complement would be 0.
    store16(&frame[payload], static_cast<std::uint16_t>(load16(&frame[payload]) + load16(&frame[checksum])));
    fill_checksums(frame, layout);
    if (load16(&frame[checksum]) != 0xffff) {  // the addition had a carry
      store16(&frame[payload], static_cast<std::uint16_t>(load16(&frame[payload]) + 1));
      fill_checksums(frame, layout);
    }
    EXPECT_EQ(load16(&frame[checksum]), 0xffff);
    EXPECT_TRUE(checksums_good(frame, layout));
    store16(&frame[checksum], 0);
    EXPECT_EQ(checksums_good(frame, layout), !v6);
  }
}

TEST(EthernetFrameTest, fragments_get_the_checksum_of_their_header_alone) {
  Bytes frame = build({.fragment = 0x2000, .protocol = kProtocolUdp});
  const FrameLayout layout = layout_of(frame);
  ASSERT_TRUE(layout.udp);
  fill_checksums(frame, layout);
  EXPECT_EQ(plain_sum(std::span(frame).subspan(14, 20)), 0xffff);
  EXPECT_EQ(load16(&frame[layout.transport + 6u]), 0);
  EXPECT_FALSE(checksums_good(frame, layout));
}

TEST(EthernetFrameTest, nothing_to_check_is_not_good) {
  Bytes icmp = build({.protocol = 1});
  fill_checksums(icmp, layout_of(icmp));
  EXPECT_FALSE(checksums_good(icmp, layout_of(icmp)));
  EXPECT_FALSE(checksums_good({}, layout_of({})));
  Bytes bad_header = build({.protocol = kProtocolUdp});
  fill_checksums(bad_header, layout_of(bad_header));
  ASSERT_TRUE(checksums_good(bad_header, layout_of(bad_header)));
  bad_header[22] ^= std::byte{1};  // TTL: of the header's checksum only
  EXPECT_FALSE(checksums_good(bad_header, layout_of(bad_header)));
}

TEST(EthernetFrameTest, segments_make_up_the_whole) {
  for (const bool v6 : {false, true}) {
    Spec spec{.v6 = v6, .vlan = 7, .tcp_options = 12, .payload = 0};
    if (v6) spec.extensions = {{0, kNoOptions}};
    Bytes header = build(spec);
    store16(&header[18 + (v6 ? 4 : 2)], 0xabcd);  // of no meaning
    const FrameLayout layout = layout_of_headers(header);
    ASSERT_EQ(layout.payload, header.size());
    constexpr std::uint32_t kPiece = 100, kPieces = 3;
    for (std::uint32_t i = 0; i < kPieces; ++i) {
      Bytes frame = header;
      frame.resize(header.size() + (i + 1 == kPieces ? 7 : kPiece), static_cast<std::byte>(i));
      ASSERT_TRUE(segment_header(frame, layout, i, i * kPiece, i + 1 == kPieces));
      fill_checksums(frame, layout);
      const FrameLayout found = layout_of(frame);
      EXPECT_TRUE(checksums_good(frame, found));
      EXPECT_EQ(plain_transport_sum(frame, spec, found), 0xffff);
      EXPECT_EQ(found.payload, header.size());
      if (!v6) {
        EXPECT_EQ(load16(&frame[18 + 4]), static_cast<std::uint16_t>(0xffff + i));
      }
      EXPECT_EQ(load32(&frame[layout.transport + 4u]), 0xfffffff0 + i * kPiece);
      const unsigned expected = i == 0 ? 0xf6 : i + 1 == kPieces ? 0x7f : 0x76;  // CWR 0x80, PSH 8, FIN 1
      EXPECT_EQ(load8(&frame[layout.transport + 13u]), expected);
      EXPECT_EQ(load16(&frame[layout.transport]), 1000);
    }
    Bytes alone = header;
    ASSERT_TRUE(segment_header(alone, layout, 0, 0, true));
    EXPECT_EQ(load8(&alone[layout.transport + 13u]), 0xff) << "both the first and the last";
  }
}

TEST(EthernetFrameTest, what_is_no_tcp_header_is_not_segmented) {
  for (const Spec& spec : {Spec{.protocol = kProtocolUdp}, Spec{.fragment = 0x2000}, Spec{.protocol = 1}}) {
    Bytes frame = build(spec);
    const Bytes before = frame;
    EXPECT_FALSE(segment_header(frame, layout_of_headers(frame), 1, 100, false));
    EXPECT_EQ(frame, before);
  }
  Bytes frame = build({});
  const FrameLayout layout = layout_of(frame);
  EXPECT_FALSE(segment_header(std::span(frame).first(layout.payload - 1u), layout, 0, 0, true));
  frame.resize(14 + 65535);
  EXPECT_TRUE(segment_header(frame, layout, 0, 0, true));
  frame.resize(14 + 65536);
  EXPECT_FALSE(segment_header(frame, layout, 0, 0, true));
}

}  // namespace
}  // namespace uroce::wire
