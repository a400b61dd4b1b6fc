#include "net/flow_table.h"
#include "wire/address.h"
#include "wire/bytes.h"
#include "wire/network_headers.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace uroce::net {
namespace {

using wire::load16;
using Bytes = std::vector<std::byte>;

constexpr wire::Mac kOwn{2, 0, 0, 0, 0, 1}, kOther{2, 0, 0, 0, 0, 2}, kGroup{1, 0, 0x5e, 0, 0, 5};

/// An IPv4 UDP frame with a VLAN tag.
Bytes udp_frame(const wire::Mac& to = kOwn, std::uint16_t dest_port = 53) {
  Bytes frame(18 + 20 + 8 + 6);
  wire::EthernetHeader{to, kOther, wire::kEtherTypeVlan}.emit(frame.data());
  wire::VlanTag{0x6005, wire::kEtherTypeIpv4}.emit(&frame[14]);
  wire::Ipv4Header ip;
  ip.traffic_class = 0xb9;
  ip.ttl = 63;
  ip.total_length = 34;
  ip.source = {192, 0, 2, 1};
  ip.dest = {192, 0, 2, 2};
  ip.emit(&frame[18]);
  wire::UdpHeader{1000, dest_port, 14, 0}.emit(&frame[38]);
  return frame;
}
FrameKey key_of(const Bytes& frame) { return net::key_of(frame, wire::layout_of(frame)); }
std::uint16_t big(std::uint16_t value) { return wire::swap_bytes(value); }

Flow to(std::uint32_t qp, std::uint32_t priority = 0) {
  Flow flow;
  flow.qp = qp;
  flow.priority = priority;
  return flow;
}
Flow to_mac(std::uint32_t qp, const wire::Mac& mac, std::uint32_t priority = 0) {
  Flow flow = to(qp, priority);
  std::memcpy(flow.value.dst_mac, mac.data(), mac.size());
  std::memset(flow.mask.dst_mac, 0xff, mac.size());
  return flow;
}
Flow to_port(std::uint32_t qp, std::uint16_t port, std::uint32_t priority = 0) {
  Flow flow = to(qp, priority);
  flow.value.dst_port = big(port);
  flow.mask.dst_port = 0xffff;
  return flow;
}
Flow of_type(Flow flow, FlowType type) {
  flow.type = type;
  return flow;
}
Flow copying(Flow flow) {
  flow.dont_trap = true;
  return flow;
}
Flow dropping(Flow flow) {
  flow.drop = true;
  return flow;
}

class FlowTableTest : public ::testing::Test {
 protected:
  void add(Flow flow) { ASSERT_TRUE(table_.add(flow.qp, std::move(flow))); }

  using Qps = std::vector<std::uint32_t>;
  Qps who_gets(const Bytes& frame) const {
    std::array<FlowTarget, FlowTable::kMaxCopies> out;
    const std::size_t count = table_.classify(frame, key_of(frame), out);
    Qps qps;
    for (std::size_t i = 0; i < count; ++i) qps.push_back(out[i].qp);
    return qps;
  }

  FlowTable table_;
};

TEST(FrameKeyTest, fields_of_ipv4_and_udp) {
  const FrameKey key = key_of(udp_frame());
  EXPECT_EQ(std::memcmp(key.dst_mac, kOwn.data(), 6), 0);
  EXPECT_EQ(std::memcmp(key.src_mac, kOther.data(), 6), 0);
  EXPECT_EQ(key.ether_type, big(0x0800));
  EXPECT_EQ(key.vlan_tag, big(0x6005));
  const std::uint8_t source[16] = {192, 0, 2, 1}, dest[16] = {192, 0, 2, 2};
  EXPECT_EQ(std::memcmp(key.src_ip, source, 16), 0);
  EXPECT_EQ(std::memcmp(key.dst_ip, dest, 16), 0);
  EXPECT_EQ(key.src_port, big(1000));
  EXPECT_EQ(key.dst_port, big(53));
  EXPECT_EQ(key.protocol, 17);
  EXPECT_EQ(key.traffic_class, 0xb9);
  EXPECT_EQ(key.hop_limit, 63);
  EXPECT_EQ(key.fragment, 2) << "don't fragment";
  EXPECT_EQ(key.flow_label, 0u);
  EXPECT_EQ(key.layers, kLayerVlan | kLayerIpv4 | kLayerUdp);
}

TEST(FrameKeyTest, fields_of_ipv6_and_tcp) {
  Bytes frame(14 + 40 + 20);
  wire::EthernetHeader{kOwn, kOther, wire::kEtherTypeIpv6}.emit(frame.data());
  wire::Ipv6Header ip;
  ip.traffic_class = 0xb9;
  ip.flow_label = 0xabcde;
  ip.payload_length = 20;
  ip.next_header = wire::kProtocolTcp;
  ip.hop_limit = 1;
  ip.source[15] = 1;
  ip.dest[15] = 2;
  ip.emit(&frame[14]);
  wire::store16(&frame[54], 7);
  wire::store16(&frame[56], 8);
  frame[66] = std::byte{0x50};
  const FrameKey key = key_of(frame);
  EXPECT_EQ(key.ether_type, big(0x86dd));
  EXPECT_EQ(key.vlan_tag, 0);
  EXPECT_EQ(key.src_ip[15], 1);
  EXPECT_EQ(key.dst_ip[15], 2);
  EXPECT_EQ(key.src_port, big(7));
  EXPECT_EQ(key.dst_port, big(8));
  EXPECT_EQ(key.protocol, 6);
  EXPECT_EQ(key.traffic_class, 0xb9);
  EXPECT_EQ(key.hop_limit, 1);
  EXPECT_EQ(key.fragment, 0);
  EXPECT_EQ(key.flow_label, wire::swap_bytes(std::uint32_t{0xabcde}));
  EXPECT_EQ(key.layers, kLayerIpv6 | kLayerTcp);
}

TEST(FrameKeyTest, fragments_say_their_bits_and_no_ports) {
  for (const auto& [on_wire, bits] : {std::pair{0x8001, 1}, {0x4001, 2}, {0x2001, 4}, {0x0001, 0}}) {
    Bytes frame = udp_frame();
    wire::store16(&frame[24], static_cast<std::uint16_t>(on_wire));
    const FrameKey key = key_of(frame);
    EXPECT_EQ(key.fragment, bits);
    EXPECT_EQ(key.dst_port, 0);
    EXPECT_EQ(key.protocol, 17);
    EXPECT_EQ(key.layers, kLayerVlan | kLayerIpv4 | kLayerFragment);
  }
}

TEST(FrameKeyTest, too_short_for_ethernet_has_nothing) {
  const FrameKey key = key_of(Bytes(13, std::byte{0xff})), none{};
  EXPECT_EQ(std::memcmp(&key, &none, sizeof key), 0);
}

TEST_F(FlowTableTest, an_empty_table_gives_to_nobody) {
  EXPECT_TRUE(table_.empty());
  EXPECT_EQ(who_gets(udp_frame()), Qps{});
}

TEST_F(FlowTableTest, each_bit_of_the_mask_counts_and_no_other) {
  const FrameKey key = key_of(udp_frame());
  for (std::size_t bit = 0; bit < 8 * sizeof key; ++bit) {
    Flow flow = to(1);
    flow.value = key;
    const auto flip = [bit](FrameKey& field) {
      reinterpret_cast<std::uint8_t*>(&field)[bit / 8] ^= static_cast<std::uint8_t>(1u << bit % 8);
    };
    flip(flow.value);
    ASSERT_TRUE(table_.add(1, flow));
    EXPECT_EQ(who_gets(udp_frame()), Qps{1}) << "a mask of nothing";
    table_.remove(1);
    flip(flow.mask);
    ASSERT_TRUE(table_.add(1, flow));
    EXPECT_EQ(who_gets(udp_frame()), Qps{}) << "bit " << bit;
    table_.remove(1);
  }
}

TEST_F(FlowTableTest, the_least_priority_wins_then_the_oldest) {
  add(to_mac(1, kOwn, 5));
  add(to_port(2, 53, 5));
  EXPECT_EQ(who_gets(udp_frame()), Qps{1});
  add(to_port(3, 53, 4));
  EXPECT_EQ(who_gets(udp_frame()), Qps{3});
  table_.remove(3);
  EXPECT_EQ(who_gets(udp_frame()), Qps{1});
  table_.remove(1);
  EXPECT_EQ(who_gets(udp_frame()), Qps{2});
  EXPECT_EQ(who_gets(udp_frame(kOwn, 54)), Qps{});
}

TEST_F(FlowTableTest, all_flows_of_the_same_rule_get_the_frame) {
  add(to_port(1, 53));
  add(to_mac(2, kOwn));
  Flow same = to_port(3, 53);
  same.value.protocol = 17;  // not in the mask
  add(same);
  add(to_port(4, 53, 1));
  EXPECT_EQ(who_gets(udp_frame()), (Qps{1, 3})) << "neither another rule nor another priority";
}

TEST_F(FlowTableTest, a_flow_that_does_not_trap_gets_a_copy) {
  add(copying(to(1)));
  add(to_port(2, 53, 1));
  add(copying(to(3, 2)));
  EXPECT_EQ(who_gets(udp_frame()), (Qps{1, 2}));
  EXPECT_EQ(who_gets(udp_frame(kOwn, 54)), (Qps{1, 3}));
}

TEST_F(FlowTableTest, dropping_ends_the_search) {
  add(copying(to(1)));
  add(dropping(to_port(2, 53, 1)));
  add(to(3, 2));
  EXPECT_EQ(who_gets(udp_frame()), Qps{1});
  EXPECT_EQ(who_gets(udp_frame(kOwn, 54)), (Qps{1, 3}));
}

TEST_F(FlowTableTest, defaults_get_what_no_flow_keeps) {
  add(of_type(to(1), FlowType::kAllDefault));
  add(of_type(to(2), FlowType::kMcDefault));
  add(to_port(3, 53, 100));
  EXPECT_EQ(who_gets(udp_frame()), Qps{3});
  EXPECT_EQ(who_gets(udp_frame(kGroup)), Qps{3});
  EXPECT_EQ(who_gets(udp_frame(kOwn, 54)), Qps{1});
  EXPECT_EQ(who_gets(udp_frame(kGroup, 54)), Qps{2});
  add(of_type(to(4), FlowType::kAllDefault));
  EXPECT_EQ(who_gets(udp_frame(kOwn, 54)), (Qps{1, 4}));
}

TEST_F(FlowTableTest, sniffers_are_apart) {
  add(of_type(to(1), FlowType::kSniffer));
  EXPECT_FALSE(table_.empty());
  EXPECT_TRUE(table_.sniffs());
  EXPECT_EQ(who_gets(udp_frame()), Qps{});
  add(of_type(to(2), FlowType::kSniffer));
  std::array<FlowTarget, 8> out;
  ASSERT_EQ(table_.sniffers(udp_frame(), out), 2u);
  EXPECT_EQ(out[0].qp, 1u);
  EXPECT_EQ(out[1].qp, 2u);
  EXPECT_EQ(table_.sniffers(udp_frame(), std::span(out).first(1)), 1u);
  table_.remove(1);
  table_.remove(2);
  EXPECT_FALSE(table_.sniffs());
  EXPECT_TRUE(table_.empty());
}

TEST_F(FlowTableTest, counts_what_flows_kept_copied_and_dropped) {
  const auto counted = [](Flow flow, const std::shared_ptr<FlowCount>& count) {
    flow.count = count;
    return flow;
  };
  const auto copied = std::make_shared<FlowCount>(), kept = std::make_shared<FlowCount>(),
             dropped = std::make_shared<FlowCount>();
  add(counted(copying(to(1)), copied));
  add(counted(to_port(2, 53), kept));
  add(counted(to_port(3, 53), kept));
  add(counted(dropping(to_port(4, 54)), dropped));
  const std::size_t bytes = udp_frame().size();
  EXPECT_EQ(who_gets(udp_frame()), (Qps{1, 2, 3}));
  EXPECT_EQ(who_gets(udp_frame(kOwn, 54)), Qps{1});
  EXPECT_EQ(copied->packets, 2u);
  EXPECT_EQ(copied->bytes, 2 * bytes);
  EXPECT_EQ(kept->packets, 2u) << "by two flows";
  EXPECT_EQ(dropped->packets, 1u);
  EXPECT_EQ(dropped->bytes, bytes);
}

TEST_F(FlowTableTest, tags_go_with_the_target) {
  Flow flow = to(1);
  flow.tag = 0xabc123;
  add(flow);
  std::array<FlowTarget, 1> out;
  const Bytes frame = udp_frame();
  ASSERT_EQ(table_.classify(frame, key_of(frame), out), 1u);
  EXPECT_EQ(out[0].tag, 0xabc123u);
}

TEST_F(FlowTableTest, is_full_with_its_limit_and_copies_are_limited) {
  for (std::uint32_t i = 0; i < FlowTable::kMaxFlows; ++i) ASSERT_TRUE(table_.add(i, to(i)));
  EXPECT_FALSE(table_.add(FlowTable::kMaxFlows, to(1)));
  EXPECT_EQ(who_gets(udp_frame()).size(), FlowTable::kMaxCopies);
  EXPECT_EQ(who_gets(udp_frame()).back(), FlowTable::kMaxCopies - 1);
  std::array<FlowTarget, 200> more;
  EXPECT_EQ(table_.classify(udp_frame(), key_of(udp_frame()), more), FlowTable::kMaxCopies);
  table_.remove(7);
  EXPECT_TRUE(table_.add(FlowTable::kMaxFlows, to(1)));
}

TEST_F(FlowTableTest, which_flows_ask_for_frames_to_others) {
  const auto wants = [](const Flow& flow) {
    FlowTable table;
    EXPECT_FALSE(table.wants_foreign(kOwn));
    EXPECT_TRUE(table.add(1, flow));
    return table.wants_foreign(kOwn);
  };
  EXPECT_FALSE(wants(to_mac(1, kOwn)));
  EXPECT_FALSE(wants(to_mac(1, kGroup)));
  EXPECT_FALSE(wants(of_type(to(1), FlowType::kMcDefault)));
  EXPECT_FALSE(wants(dropping(to_port(1, 53))));
  EXPECT_TRUE(wants(to_mac(1, kOther)));
  EXPECT_TRUE(wants(to_port(1, 53))) << "whomever to";
  EXPECT_TRUE(wants(of_type(to(1), FlowType::kAllDefault)));
  EXPECT_TRUE(wants(of_type(to(1), FlowType::kSniffer)));
  Flow groups = to(1);
  groups.value.dst_mac[0] = groups.mask.dst_mac[0] = 1;
  EXPECT_FALSE(wants(groups));
  Flow either = to_mac(1, kOwn);
  either.mask.dst_mac[0] = 0xfe;
  EXPECT_FALSE(wants(either)) << "own address or a group's";
  either.value.dst_mac[5] = 9;
  EXPECT_TRUE(wants(either));
  either = to_mac(1, kOwn);
  either.mask.dst_mac[5] = 0xfe;
  EXPECT_TRUE(wants(either)) << "own address or the next one";
}

/// Microsoft's verification suite for RSS: key, and two of its vectors.
class RssTest : public ::testing::Test {
 protected:
  RssTest() {
    rss_.key = {0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
                0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
                0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};
    for (std::uint32_t i = 0; i < 128; ++i) rss_.qps.push_back(i);
    key4_.layers = kLayerIpv4 | kLayerUdp;
    const std::uint8_t source[] = {66, 9, 149, 187}, dest[] = {161, 142, 100, 80};
    std::memcpy(key4_.src_ip, source, 4);
    std::memcpy(key4_.dst_ip, dest, 4);
    key4_.src_port = big(2794);
    key4_.dst_port = big(1766);
  }
  std::uint32_t chosen(std::uint32_t fields, const FrameKey& key) {
    rss_.fields = fields;
    return choose(rss_, key);
  }
  RssTarget rss_;
  FrameKey key4_{};
};

TEST_F(RssTest, the_hash_is_over_the_fields_asked_for) {
  constexpr std::uint32_t kAddresses = kRssSrcIpv4 | kRssDstIpv4 | kRssSrcIpv6 | kRssDstIpv6;
  constexpr std::uint32_t kUdp = kRssSrcPortUdp | kRssDstPortUdp, kTcp = kRssSrcPortTcp | kRssDstPortTcp;
  EXPECT_EQ(chosen(kAddresses, key4_), 0x323e8fc2u % 128);
  EXPECT_EQ(chosen(kAddresses | kUdp, key4_), 0x51ccc178u % 128);
  EXPECT_EQ(chosen(kAddresses | kTcp, key4_), 0x323e8fc2u % 128) << "it has no TCP ports";
  key4_.layers = kLayerIpv4 | kLayerTcp;
  EXPECT_EQ(chosen(kAddresses | kTcp, key4_), 0x51ccc178u % 128);
  key4_.layers |= kLayerFragment;
  EXPECT_EQ(chosen(kAddresses | kTcp, key4_), 0x323e8fc2u % 128) << "later fragments have no ports";
  EXPECT_EQ(chosen(0, key4_), 0u);
  EXPECT_EQ(chosen(kRssSrcIpv6, key4_), 0u);

  FrameKey key6{};
  key6.layers = kLayerIpv6 | kLayerTcp;
  const std::uint8_t source[16] = {0x3f, 0xfe, 0x25, 1, 2, 0, 0x1f, 0xff, 0, 0, 0, 0, 0, 0, 0, 7};
  const std::uint8_t dest[16] = {0x3f, 0xfe, 0x25, 1, 2, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1};
  std::memcpy(key6.src_ip, source, 16);
  std::memcpy(key6.dst_ip, dest, 16);
  key6.src_port = big(2794);
  key6.dst_port = big(1766);
  EXPECT_EQ(chosen(kAddresses, key6), 0x2cc18cd5u % 128);
  EXPECT_EQ(chosen(kAddresses | kTcp, key6), 0x40207d3du % 128);
}

TEST_F(RssTest, a_flow_gives_to_the_chosen_one) {
  rss_.fields = kRssDstPortUdp;
  FlowTable table;
  Flow flow = to(77);
  flow.rss = std::make_shared<const RssTarget>(rss_);
  ASSERT_TRUE(table.add(1, flow));
  std::vector<bool> seen(128);
  for (std::uint16_t port = 1; port < 1000; ++port) {
    const Bytes frame = udp_frame(kOwn, port);
    std::array<FlowTarget, 1> out;
    ASSERT_EQ(table.classify(frame, key_of(frame), out), 1u);
    ASSERT_EQ(out[0].qp, choose(rss_, key_of(frame)));
    seen[out[0].qp] = true;
  }
  EXPECT_GT(std::ranges::count(seen, true), 100);
}

}  // namespace
}  // namespace uroce::net
