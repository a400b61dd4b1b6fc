// Flow steering: which raw packet QP receives a frame, and the actions on the way.
#include <endian.h>

#include <algorithm>

#include "frames.h"

namespace conformance {
namespace {

/// Whether the next frame received by the side is this one.
void check_gets(RawSide& side, const Bytes& frame) {
  const Bytes got = side.receive();
  CHECK(got.size() >= frame.size());
  CHECK(std::equal(frame.begin(), frame.end(), got.begin()));
}

/// Of two sides on one device, the first receives the frame and the second does not.
void check_only(RawPair& pair, RawSide& gets, RawSide& other, const Bytes& frame) {
  CHECK_OK(pair.left.send(frame));
  check_gets(gets, frame);
  CHECK(stays_empty(other.recv, std::chrono::milliseconds(5)));
}

CONFORMANCE_CASE(flow_by_port, "ibv_create_flow(3), IBV_FLOW_SPEC_UDP, IBV_FLOW_SPEC_TCP, IBV_FLOW_SPEC_IPV4") {
  RawPair pair(bench);
  RawSide other(bench.right);
  Packet packet;
  const auto rule = [&](ibv_flow_spec_type type, std::uint16_t port) {
    Rule made;
    made.add(to_mac(pair.link.to)).add(to_ipv4(packet.dst_ip)).add(to_port(type, port));
    return made;
  };
  const Flow first = rule(IBV_FLOW_SPEC_UDP, 7002).apply(pair.right.qp.get());
  const Flow second = rule(IBV_FLOW_SPEC_UDP, 7003).apply(other.qp.get());
  const Flow third = rule(IBV_FLOW_SPEC_TCP, 7002).apply(other.qp.get());
  check_only(pair, pair.right, other, pair.link.frame(packet));
  packet.dst_port = 7003;
  check_only(pair, other, pair.right, pair.link.frame(packet));
  packet.dst_port = 7002;
  packet.protocol = 6;
  check_only(pair, other, pair.right, pair.link.frame(packet));
  // Another address, which no flow matches.
  packet.dst_ip ^= 1;
  CHECK_OK(pair.left.send(pair.link.frame(packet)));
  CHECK(stays_empty(pair.right.recv) && stays_empty(other.recv));
}

CONFORMANCE_CASE(flow_by_ipv4_fields, "ibv_create_flow(3), IBV_FLOW_SPEC_IPV4_EXT") {
  RawPair pair(bench);
  RawSide other(bench.right);
  ibv_flow_spec_ipv4_ext spec{};
  spec.type = IBV_FLOW_SPEC_IPV4_EXT;
  spec.val.proto = 17;
  spec.val.tos = 0x48;
  spec.mask.proto = 0xff;
  spec.mask.tos = 0xff;
  const Flow first = Rule().add(to_mac(pair.link.to)).add(spec).apply(pair.right.qp.get());
  spec.val.tos = 0x50;
  const Flow second = Rule().add(to_mac(pair.link.to)).add(spec).apply(other.qp.get());
  Packet packet;
  packet.tos = 0x48;
  check_only(pair, pair.right, other, pair.link.frame(packet));
  packet.tos = 0x50;
  check_only(pair, other, pair.right, pair.link.frame(packet));
}

CONFORMANCE_CASE(flow_by_ipv6_fields, "ibv_create_flow(3), IBV_FLOW_SPEC_IPV6") {
  RawPair pair(bench);
  RawSide other(bench.right);
  Packet packet;
  packet.ipv6 = true;
  const auto rule = [&](std::uint32_t last) {
    ibv_flow_spec_ipv6 spec{};
    spec.type = IBV_FLOW_SPEC_IPV6;
    const std::uint32_t words[4] = {htobe32(0x20010db8), 0, 0, htobe32(last)};
    std::memcpy(spec.val.dst_ip, words, sizeof(words));
    std::memset(spec.mask.dst_ip, 0xff, sizeof(spec.mask.dst_ip));
    spec.val.next_hdr = 17;
    spec.mask.next_hdr = 0xff;
    Rule made;
    made.add(to_mac(pair.link.to)).add(spec).add(to_port(IBV_FLOW_SPEC_UDP, packet.dst_port));
    return made;
  };
  const Flow first = rule(packet.dst_ip).apply(pair.right.qp.get());
  const Flow second = rule(packet.dst_ip + 1).apply(other.qp.get());
  check_only(pair, pair.right, other, pair.link.frame(packet));
  ++packet.dst_ip;
  check_only(pair, other, pair.right, pair.link.frame(packet));
}

CONFORMANCE_CASE(flow_by_vlan, "ibv_create_flow(3): vlan_tag, and the EtherType that follows it") {
  RawPair pair(bench);
  RawSide other(bench.right);
  const auto rule = [&](std::uint16_t vlan) {
    ibv_flow_spec_eth spec = to_mac(pair.link.to, kExperimental);
    spec.val.vlan_tag = htobe16(vlan);
    spec.mask.vlan_tag = htobe16(0x0fff);
    Rule made;
    made.add(spec);
    return made;
  };
  const Flow first = rule(291).apply(pair.right.qp.get());
  const Flow second = rule(292).apply(other.qp.get());
  check_only(pair, pair.right, other, pair.link.frame(kExperimental, pattern(90), 0x6000 | 291));
  check_only(pair, other, pair.right, pair.link.frame(kExperimental, pattern(90), 0x2000 | 292));
  CHECK_OK(pair.left.send(pair.link.frame(kExperimental, pattern(90))));
  CHECK(stays_empty(pair.right.recv) && stays_empty(other.recv));
}

CONFORMANCE_CASE(flow_by_priority, "ibv_create_flow(3): the lower number first") {
  RawPair pair(bench);
  RawSide other(bench.right);
  const Bytes frame = pair.link.frame(kExperimental, pattern(100));
  const Flow low = pair.rule(kExperimental, 5).apply(pair.right.qp.get());
  check_only(pair, pair.right, other, frame);
  {
    const Flow high = pair.rule(kExperimental, 1).apply(other.qp.get());
    check_only(pair, other, pair.right, frame);
  }
  check_only(pair, pair.right, other, frame);
}

CONFORMANCE_CASE(flow_that_traps_nothing, "ibv_create_flow(3), IBV_FLOW_ATTR_FLAGS_DONT_TRAP") {
  RawPair pair(bench);
  RawSide other(bench.right);
  const Flow copy = pair.rule(kExperimental, 1, IBV_FLOW_ATTR_FLAGS_DONT_TRAP).apply(other.qp.get());
  const Flow rest = pair.rule(kExperimental, 5).apply(pair.right.qp.get());
  const Bytes frame = pair.link.frame(kExperimental, pattern(100));
  CHECK_OK(pair.left.send(frame));
  check_gets(pair.right, frame);
  check_gets(other, frame);
}

/// One rule for frames to a group, and such a frame.
struct ToGroup {
  Rule rule;
  Bytes frame;
};

std::vector<ToGroup> all_to_group(const Link& link) {
  Packet udp4, tcp4, udp6, tcp6;
  tcp4.protocol = tcp6.protocol = 6;
  udp6.ipv6 = tcp6.ipv6 = true;
  ibv_flow_spec_ipv6 ipv6{};
  ipv6.type = IBV_FLOW_SPEC_IPV6;
  const std::uint32_t words[4] = {htobe32(0x20010db8), 0, 0, htobe32(udp6.dst_ip)};
  std::memcpy(ipv6.val.dst_ip, words, sizeof(words));
  std::memset(ipv6.mask.dst_ip, 0xff, sizeof(ipv6.mask.dst_ip));
  const ibv_flow_spec_ipv4 ipv4 = to_ipv4(udp4.dst_ip);
  const ibv_flow_spec_tcp_udp udp = to_port(IBV_FLOW_SPEC_UDP, udp4.dst_port),
                              tcp = to_port(IBV_FLOW_SPEC_TCP, tcp4.dst_port);
  return {{Rule().add(to_mac(link.to, kExperimental)), link.frame(kExperimental, pattern(100))},
          {Rule().add(ipv4), link.frame(udp4)},
          {Rule().add(to_mac(link.to)).add(ipv4).add(udp), link.frame(udp4)},
          {Rule().add(to_mac(link.to)).add(ipv4).add(tcp), link.frame(tcp4)},
          {Rule().add(to_mac(link.to, kIpv6)).add(ipv6), link.frame(udp6)},
          {Rule().add(to_mac(link.to, kIpv6)).add(ipv6).add(udp), link.frame(udp6)},
          {Rule().add(to_mac(link.to, kIpv6)).add(ipv6).add(tcp), link.frame(tcp6)}};
}

constexpr Mac kGroup{0x01, 0x50, 0x56, 0x19, 0x20, 0xa7};

CONFORMANCE_CASE(flow_to_a_group, "ibv_create_flow(3): multicast, also to flows of the port that sends") {
  RawPair pair(bench);
  RawSide near(bench.left);
  const Link link{pair.link.from, kGroup};
  for (ToGroup& each : all_to_group(link)) {
    const Flow far_flow = each.rule.apply(pair.right.qp.get()), near_flow = each.rule.apply(near.qp.get()),
               own_flow = each.rule.apply(pair.left.qp.get());
    CHECK_OK(pair.left.send(each.frame));
    check_gets(pair.right, each.frame);
    check_gets(near, each.frame);
    check_gets(pair.left, each.frame);
  }
  // Without flows nothing arrives.
  CHECK_OK(pair.left.send(link.frame(kExperimental, pattern(100))));
  for (RawSide* const side : {&pair.right, &near, &pair.left}) {
    CHECK(stays_empty(side->recv, std::chrono::milliseconds(5)));
  }
}

CONFORMANCE_CASE(flow_to_a_group_default, "ibv_create_flow(3), IBV_FLOW_ATTR_MC_DEFAULT; broadcast") {
  RawPair pair(bench);
  RawSide near(bench.left);
  const Flow flow = Rule(IBV_FLOW_ATTR_MC_DEFAULT).apply(near.qp.get());
  for (const Mac& to : {kGroup, Mac{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}) {
    const Bytes frame = Link{pair.link.from, to}.frame(kExperimental, pattern(100));
    CHECK_OK(pair.left.send(frame));
    // The port may receive frames of others, too.
    Bytes got;
    while (got.size() < 14 || read16(got, 12) != kExperimental) got = near.receive();
    CHECK(std::equal(frame.begin(), frame.end(), got.begin()));
  }
}

CONFORMANCE_CASE(flow_to_a_group_not_to_oneself, "ibv_create_qp_ex(3), IBV_QP_CREATE_BLOCK_SELF_MCAST_LB") {
  RawPair pair(bench, {.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB});
  RawSide near(bench.left);
  const Bytes frame = Link{pair.link.from, kGroup}.frame(kExperimental, pattern(100));
  Rule rule;
  rule.add(to_mac(kGroup, kExperimental));
  const Flow own_flow = rule.apply(pair.left.qp.get()), near_flow = rule.apply(near.qp.get());
  CHECK_OK(pair.left.send(frame));
  check_gets(near, frame);
  CHECK(stays_empty(pair.left.recv, std::chrono::milliseconds(5)));
  CHECK_OK(near.send(frame));
  check_gets(near, frame);
  check_gets(pair.left, frame);
}

CONFORMANCE_CASE(flow_default, "ibv_create_flow(3), IBV_FLOW_ATTR_ALL_DEFAULT, IBV_FLOW_ATTR_MC_DEFAULT") {
  RawPair pair(bench);
  RawSide rest(bench.right), multicast(bench.right);
  const Flow normal = pair.rule().apply(pair.right.qp.get());
  const Flow group = Rule(IBV_FLOW_ATTR_MC_DEFAULT).apply(multicast.qp.get());
  const Flow all = Rule(IBV_FLOW_ATTR_ALL_DEFAULT).apply(rest.qp.get());
  const Bytes first = pair.link.frame(kExperimental, pattern(100));
  CHECK_OK(pair.left.send(first));
  check_gets(pair.right, first);
  constexpr std::uint16_t kOther = kExperimental + 1;  // the other experimental EtherType
  const Bytes frame = pair.link.frame(kOther, pattern(100));
  CHECK_OK(pair.left.send(frame));
  // The port may receive frames of others, too.
  Bytes got;
  while (got.size() < 14 || read16(got, 12) != kOther) {
    got = rest.receive();
    CHECK(got.size() < 14 || read16(got, 12) != kExperimental);
  }
  CHECK(std::equal(frame.begin(), frame.end(), got.begin()));
}

CONFORMANCE_CASE(flow_sniffer, "ibv_create_flow(3), IBV_FLOW_ATTR_SNIFFER") {
  RawPair pair(bench);
  RawSide sniffer(bench.right);
  const Flow all = Rule(IBV_FLOW_ATTR_SNIFFER).apply(sniffer.qp.get());
  const Flow flow = pair.rule().apply(pair.right.qp.get());
  const Bytes frame = pair.link.frame(kExperimental, pattern(100));
  CHECK_OK(pair.left.send(frame));
  check_gets(pair.right, frame);
  Bytes got;
  while (got.size() < 14 || read16(got, 12) != kExperimental) got = sniffer.receive();
  CHECK(std::equal(frame.begin(), frame.end(), got.begin()));
}

CONFORMANCE_CASE(flow_tag, "ibv_create_flow(3), IBV_FLOW_SPEC_ACTION_TAG; ibv_create_cq_ex(3)") {
  ibv_cq_init_attr_ex init{};
  init.cqe = 64;
  init.wc_flags = IBV_WC_EX_WITH_FLOW_TAG;
  ibv_cq_ex* const ex = CHECK_MADE(ibv_create_cq_ex(bench.right.context, &init));
  const Cq cq(ibv_cq_ex_to_cq(ex));
  RawPair pair(bench, {}, {.recv_cq = cq.get()});
  ibv_flow_spec_action_tag tag{};
  tag.type = IBV_FLOW_SPEC_ACTION_TAG;
  tag.tag_id = 0x12345;
  const Flow flow = pair.rule().add(tag).apply(pair.right.qp.get());
  CHECK_OK(pair.left.send(pair.link.frame(kExperimental, pattern(100))));
  CHECK_EQ(await_poll(ex), 0);
  CHECK_EQ(ibv_wc_read_flow_tag(ex), tag.tag_id);
  ibv_end_poll(ex);
}

ibv_flow_spec_action_drop drop() {
  ibv_flow_spec_action_drop spec{};
  spec.type = IBV_FLOW_SPEC_ACTION_DROP;
  return spec;
}

CONFORMANCE_CASE(flow_that_drops, "ibv_create_flow(3), IBV_FLOW_SPEC_ACTION_DROP") {
  RawPair pair(bench);
  const Bytes frame = pair.link.frame(kExperimental, pattern(100));
  const Flow flow = pair.rule(kExperimental, 5).apply(pair.right.qp.get());
  {
    const Flow dropping = pair.rule(kExperimental, 1).add(drop()).apply(pair.right.qp.get());
    CHECK_OK(pair.left.send(frame));
    CHECK(stays_empty(pair.right.recv));
  }
  CHECK_OK(pair.left.send(frame));
  check_gets(pair.right, frame);
}

Counters make_counters(const End& end) {
  ibv_counters_init_attr init{};
  return Counters(CHECK_MADE(ibv_create_counters(end.context, &init)));
}

int attach(const Counters& counters, ibv_counter_description what, std::uint32_t index, ibv_flow* flow = nullptr) {
  ibv_counter_attach_attr attr{};
  attr.counter_desc = what;
  attr.index = index;
  return ibv_attach_counters_point_flow(counters.get(), &attr, flow);
}

ibv_flow_spec_counter_action count(const Counters& counters) {
  ibv_flow_spec_counter_action spec{};
  spec.type = IBV_FLOW_SPEC_ACTION_COUNT;
  spec.counters = counters.get();
  return spec;
}

CONFORMANCE_CASE(flow_counters, "ibv_create_counters(3), ibv_attach_counters_point_flow(3), ibv_read_counters(3)") {
  RawPair pair(bench);
  Counters counters = make_counters(bench.right);
  CHECK_OK(attach(counters, IBV_COUNTER_PACKETS, 1));
  CHECK_OK(attach(counters, IBV_COUNTER_BYTES, 0));
  Flow flow = pair.rule().add(count(counters)).apply(pair.right.qp.get());
  CHECK_EQ(attach(counters, IBV_COUNTER_PACKETS, 2), EBUSY);
  CHECK_EQ(counters.destroy(), EBUSY);
  std::uint64_t values[2] = {9, 9};
  CHECK_OK(ibv_read_counters(counters.get(), values, 2, 0));
  CHECK_EQ(values[0] + values[1], 0u);
  const Bytes frame = pair.link.frame(kExperimental, pattern(200));
  for (int i = 0; i < 3; ++i) {
    CHECK_OK(pair.left.send(frame));
    check_gets(pair.right, frame);
  }
  CHECK_OK(ibv_read_counters(counters.get(), values, 2, IBV_READ_COUNTERS_ATTR_PREFER_CACHED));
  CHECK_OK(ibv_read_counters(counters.get(), values, 2, 0));
  CHECK_EQ(values[1], 3u);
  CHECK_EQ(values[0], 3 * frame.size());
  // The counters keep their values, and points may be added while no flow uses them.
  CHECK_OK(flow.destroy());
  CHECK_OK(attach(counters, IBV_COUNTER_PACKETS, 1));
  CHECK_OK(ibv_read_counters(counters.get(), values, 2, 0));
  CHECK_EQ(values[1], 6u);
  CHECK_EQ(ibv_read_counters(counters.get(), values, 1, 0), EINVAL);
}

CONFORMANCE_CASE(flow_counters_of_two, "ibv_attach_counters_point_flow(3): the values of several flows add up") {
  RawPair pair(bench);
  const Counters counters = make_counters(bench.right);
  CHECK_OK(attach(counters, IBV_COUNTER_PACKETS, 0));
  const Flow first = pair.rule().add(count(counters)).apply(pair.right.qp.get());
  const Flow second = pair.rule(kExperimental + 1).add(count(counters)).add(drop()).apply(pair.right.qp.get());
  CHECK_OK(pair.left.send(pair.link.frame(kExperimental + 1, pattern(100))));
  CHECK_OK(pair.left.send(pair.link.frame(kExperimental, pattern(100))));
  pair.right.receive();
  std::uint64_t value = 0;
  CHECK_OK(ibv_read_counters(counters.get(), &value, 1, 0));
  CHECK_EQ(value, 2u);
}

CONFORMANCE_CASE(flow_counters_attached_later, "ibv_attach_counters_point_flow(3), of a flow") {
  RawPair pair(bench);
  const Counters counters = make_counters(bench.right);
  CHECK_OK(attach(counters, IBV_COUNTER_PACKETS, 0));
  const Flow flow = pair.rule().add(count(counters)).apply(pair.right.qp.get());
  const Bytes frame = pair.link.frame(kExperimental, pattern(100));
  CHECK_OK(pair.left.send(frame));
  check_gets(pair.right, frame);
  CHECK_OK(attach(counters, IBV_COUNTER_BYTES, 1, flow.get()));
  CHECK_OK(pair.left.send(frame));
  check_gets(pair.right, frame);
  std::uint64_t values[2] = {};
  CHECK_OK(ibv_read_counters(counters.get(), values, 2, 0));
  CHECK_EQ(values[0], 2u);
  CHECK_EQ(values[1], frame.size());
}

CONFORMANCE_CASE(flow_keeps_its_qp, "ibv_destroy_qp(3): not while something refers to it") {
  RawPair pair(bench);
  Flow flow = pair.rule().apply(pair.right.qp.get());
  CHECK(pair.right.qp.destroy() != 0);
  CHECK_OK(flow.destroy());
  CHECK_OK(pair.right.qp.destroy());
}

CONFORMANCE_CASE(flow_layouts, "ibv_create_flow(3): specs after the attributes") {
  RawPair pair(bench);
  struct {
    ibv_flow_attr attr;
    ibv_flow_spec_eth eth;
    ibv_flow_spec_action_tag tag;
  } natural{};
  natural.attr = Rule().attr();
  natural.attr.size = sizeof(natural);
  natural.attr.num_of_specs = 2;
  natural.eth = to_mac(pair.link.to, kExperimental);
  natural.eth.size = sizeof(natural.eth);
  natural.tag.type = IBV_FLOW_SPEC_ACTION_TAG;
  natural.tag.size = sizeof(natural.tag);
  const Flow flow(CHECK_MADE(ibv_create_flow(pair.right.qp.get(), &natural.attr)));
  const Bytes frame = pair.link.frame(kExperimental, pattern(100));
  CHECK_OK(pair.left.send(frame));
  check_gets(pair.right, frame);
}

CONFORMANCE_CASE(flow_refused, "ibv_create_flow(3), EINVAL") {
  const RawSide side(bench.left);
  ibv_qp* const qp = side.qp.get();
  const Mac mac{2, 0, 0, 0, 0, 9};
  const ibv_flow_spec_tcp_udp udp = to_port(IBV_FLOW_SPEC_UDP, 1), tcp = to_port(IBV_FLOW_SPEC_TCP, 1);
  ibv_flow_spec_ipv6 ipv6{};
  ipv6.type = IBV_FLOW_SPEC_IPV6;
  CHECK_EQ(Rule().add(to_mac(mac)).add(to_ipv4(1)).add(udp).refusal(qp), 0);
  // Two specs of one layer, or a layer that the one below excludes.
  CHECK_EQ(Rule().add(to_mac(mac)).add(to_mac(mac)).refusal(qp), EINVAL);
  CHECK_EQ(Rule().add(to_mac(mac)).add(to_ipv4(1)).add(ipv6).refusal(qp), EINVAL);
  CHECK_EQ(Rule().add(to_mac(mac)).add(to_ipv4(1)).add(udp).add(tcp).refusal(qp), EINVAL);
  CHECK_EQ(Rule().add(to_mac(mac, kIpv6)).add(to_ipv4(1)).refusal(qp), EINVAL);
  // Unsupported specs.
  Rule rule;
  rule.add(to_mac(mac)).attr().port = 2;
  CHECK_EQ(rule.refusal(qp), EINVAL);
  rule.attr().port = 1;
  rule.attr().comp_mask = 1;
  CHECK_EQ(rule.refusal(qp), EINVAL);
  rule.attr().comp_mask = 0;
  rule.attr().flags = 1u << 20;
  CHECK_EQ(rule.refusal(qp), EINVAL);
  rule.attr().flags = 0;
  CHECK_EQ(rule.refusal(qp), 0);
  ibv_flow_spec_eth wrong = to_mac(mac);
  wrong.type = static_cast<ibv_flow_spec_type>(0x99);
  CHECK_EQ(Rule().add(wrong).refusal(qp), EINVAL);
  CHECK_EQ(Rule(IBV_FLOW_ATTR_ALL_DEFAULT, 0, IBV_FLOW_ATTR_FLAGS_DONT_TRAP).refusal(qp), EINVAL);
  const Cq cq = make_cq(bench.left, 16);
  const QpObject rc = make_qp(bench.left, side.pd.get(), cq.get(), cq.get(), IBV_QPT_RC);
  CHECK_EQ(Rule().add(to_mac(mac)).refusal(rc.get()), EINVAL);
}

}  // namespace
}  // namespace conformance
