// Translates the specs of a flow, one for each layer or action, into value and mask of a frame (uroce_frame_key).
// The specs follow each other in memory, each with its size.
#include <endian.h>

#include <cstring>

#include "flow.h"
#include "objects.h"

namespace uroce::verbs {
namespace {

constexpr std::uint16_t kIpv4 = 0x0800, kIpv6 = 0x86dd;  // EtherTypes
constexpr std::uint8_t kTcp = 6, kUdp = 17;              // protocols

struct Reading {
  uroce_create_flow_request& request;
  Counters*& counters;
  bool ethernet = false;
};

// Whether the masked field can also have the value `other`.
template <class Number>
bool agree(Number value, Number mask, Number other) {
  return (mask & (value ^ other)) == 0;
}

void need_layer(uroce_create_flow_request& request, std::uint8_t layer) {
  request.value.layers |= layer;
  request.mask.layers |= layer;
}

void copy(const ibv_flow_eth_filter& in, uroce_frame_key& out) {
  std::memcpy(out.dst_mac, in.dst_mac, sizeof(out.dst_mac));
  std::memcpy(out.src_mac, in.src_mac, sizeof(out.src_mac));
  out.ether_type = in.ether_type;
  out.vlan_tag = in.vlan_tag;
}
void copy(const ibv_flow_ipv4_filter& in, uroce_frame_key& out) {
  std::memcpy(out.src_ip, &in.src_ip, sizeof(in.src_ip));
  std::memcpy(out.dst_ip, &in.dst_ip, sizeof(in.dst_ip));
}
void copy(const ibv_flow_ipv4_ext_filter& in, uroce_frame_key& out) {
  copy(ibv_flow_ipv4_filter{in.src_ip, in.dst_ip}, out);
  out.protocol = in.proto;
  out.traffic_class = in.tos;
  out.hop_limit = in.ttl;
  out.fragment = in.flags;
}
void copy(const ibv_flow_ipv6_filter& in, uroce_frame_key& out) {
  std::memcpy(out.src_ip, in.src_ip, sizeof(out.src_ip));
  std::memcpy(out.dst_ip, in.dst_ip, sizeof(out.dst_ip));
  out.flow_label = in.flow_label;
  out.protocol = in.next_hdr;
  out.traffic_class = in.traffic_class;
  out.hop_limit = in.hop_limit;
}
void copy(const ibv_flow_tcp_udp_filter& in, uroce_frame_key& out) {
  out.dst_port = in.dst_port;
  out.src_port = in.src_port;
}

// Copies a spec with its type, size and padding. False: wrong size.
template <class Spec>
bool load(const std::byte* at, std::uint16_t size, Spec& out) {
  if (size != sizeof(Spec)) return false;
  std::memcpy(static_cast<void*>(&out), at, sizeof(Spec));
  return true;
}

template <class Spec>
bool read_fields(const std::byte* at, std::uint16_t size, uroce_create_flow_request& out) {
  Spec spec;
  if (!load(at, size, spec)) return false;
  copy(spec.val, out.value);
  copy(spec.mask, out.mask);
  return true;
}

bool read_ethernet(const std::byte* at, std::uint16_t size, Reading& reading) {
  if (reading.ethernet || !read_fields<ibv_flow_spec_eth>(at, size, reading.request)) return false;
  reading.ethernet = true;
  if (reading.request.mask.vlan_tag != 0) need_layer(reading.request, UROCE_LAYER_VLAN);
  return true;
}

constexpr std::uint8_t kNetwork = UROCE_LAYER_IPV4 | UROCE_LAYER_IPV6;
constexpr std::uint8_t kTransport = UROCE_LAYER_TCP | UROCE_LAYER_UDP;

template <class Spec>
bool read_network(const std::byte* at, std::uint16_t size, std::uint8_t layer, uroce_create_flow_request& out) {
  if ((out.mask.layers & kNetwork) != 0 || !read_fields<Spec>(at, size, out)) return false;
  need_layer(out, layer);
  return be32toh(out.mask.flow_label) < 1u << 20;
}

bool read_transport(const std::byte* at, std::uint16_t size, std::uint8_t layer, uroce_create_flow_request& out) {
  if ((out.mask.layers & kTransport) != 0 || !read_fields<ibv_flow_spec_tcp_udp>(at, size, out)) return false;
  need_layer(out, layer);
  return true;
}

bool add_flag(uroce_create_flow_request& request, std::uint32_t flag) {
  if ((request.flags & flag) != 0) return false;
  request.flags |= flag;
  return true;
}

bool read_tag(const std::byte* at, std::uint16_t size, uroce_create_flow_request& out) {
  ibv_flow_spec_action_tag spec;
  if (!load(at, size, spec) || !add_flag(out, UROCE_FLOW_TAG)) return false;
  out.tag = spec.tag_id;
  return true;
}

bool read_count(const std::byte* at, std::uint16_t size, Reading& reading) {
  ibv_flow_spec_counter_action spec;
  if (!load(at, size, spec) || spec.counters == nullptr || reading.counters != nullptr) return false;
  reading.counters = reinterpret_cast<Counters*>(spec.counters);
  reading.request.counters = reading.counters->handle;
  return true;
}

int read_spec(std::uint32_t type, const std::byte* at, std::uint16_t size, Reading& reading) {
  uroce_create_flow_request& out = reading.request;
  const auto answer = [](bool good) { return good ? 0 : EINVAL; };
  switch (type) {
    case IBV_FLOW_SPEC_ETH: return answer(read_ethernet(at, size, reading));
    case IBV_FLOW_SPEC_IPV4: return answer(read_network<ibv_flow_spec_ipv4>(at, size, UROCE_LAYER_IPV4, out));
    case IBV_FLOW_SPEC_IPV4_EXT:
      return answer(read_network<ibv_flow_spec_ipv4_ext>(at, size, UROCE_LAYER_IPV4, out));
    case IBV_FLOW_SPEC_IPV6: return answer(read_network<ibv_flow_spec_ipv6>(at, size, UROCE_LAYER_IPV6, out));
    case IBV_FLOW_SPEC_TCP: return answer(read_transport(at, size, UROCE_LAYER_TCP, out));
    case IBV_FLOW_SPEC_UDP: return answer(read_transport(at, size, UROCE_LAYER_UDP, out));
    case IBV_FLOW_SPEC_ACTION_TAG: return answer(read_tag(at, size, out));
    case IBV_FLOW_SPEC_ACTION_DROP:
      return answer(size == sizeof(ibv_flow_spec_action_drop) && add_flag(out, UROCE_FLOW_DROP));
    case IBV_FLOW_SPEC_ACTION_COUNT: return answer(read_count(at, size, reading));
    case IBV_FLOW_SPEC_ESP:
    case IBV_FLOW_SPEC_VXLAN_TUNNEL:
    case IBV_FLOW_SPEC_GRE:
    case IBV_FLOW_SPEC_MPLS:
    case IBV_FLOW_SPEC_ACTION_HANDLE: return EOPNOTSUPP;
    default: return (type & IBV_FLOW_SPEC_INNER) != 0 ? EOPNOTSUPP : EINVAL;
  }
}

// False: the specs contradict each other, so no frame can match.
bool possible(const uroce_create_flow_request& flow) {
  const uroce_frame_key &value = flow.value, &mask = flow.mask;
  if ((value.layers & kNetwork) != 0) {
    const std::uint16_t type = htobe16((value.layers & UROCE_LAYER_IPV4) != 0 ? kIpv4 : kIpv6);
    if (!agree(value.ether_type, mask.ether_type, type)) return false;
  }
  if ((value.layers & kTransport) == 0) return true;
  const std::uint8_t protocol = (value.layers & UROCE_LAYER_TCP) != 0 ? kTcp : kUdp;
  // TCP and UDP are in IP packets only.
  const bool other = (value.layers & kNetwork) == 0 && !agree(value.ether_type, mask.ether_type, htobe16(kIpv4)) &&
                     !agree(value.ether_type, mask.ether_type, htobe16(kIpv6));
  return !other && agree(value.protocol, mask.protocol, protocol);
}

}  // namespace

int read_specs(const ibv_flow_attr& attr, uroce_create_flow_request& request, Counters*& counters) {
  Reading reading{request, counters};
  const auto* at = reinterpret_cast<const std::byte*>(&attr + 1);
  for (unsigned i = 0; i < attr.num_of_specs; ++i) {
    std::uint32_t type;
    std::uint16_t size;
    std::memcpy(&type, at, sizeof(type));
    std::memcpy(&size, at + offsetof(ibv_flow_spec_action_drop, size), sizeof(size));
    if (const int error = read_spec(type, at, size, reading); error != 0) return error;
    at += size;
  }
  const bool selects = reading.ethernet || request.mask.layers != 0;
  if (request.type != UROCE_FLOW_NORMAL && selects) return EINVAL;
  if ((request.flags & UROCE_FLOW_DROP) != 0 && (request.flags & UROCE_FLOW_DONT_TRAP) != 0) return EINVAL;
  return possible(request) ? 0 : EINVAL;
}

}  // namespace uroce::verbs
