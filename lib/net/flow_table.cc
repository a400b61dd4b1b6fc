#include "net/flow_table.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "wire/network_headers.h"
#include "wire/toeplitz.h"

namespace uroce::net {
namespace {

constexpr std::size_t kMacBytes = 6;

template <class T>
void copy_field(T& to, const std::byte* from, std::size_t bytes = sizeof(T)) {
  std::memcpy(&to, from, bytes);
}

/// The order in which the types of flows are matched.
int rank(FlowType type) { return type == FlowType::kNormal ? 0 : type == FlowType::kMcDefault ? 1 : 2; }

void put_ipv4(FrameKey& key, const std::byte* ip) {
  copy_field(key.src_ip, ip + 12, 4);
  copy_field(key.dst_ip, ip + 16, 4);
  copy_field(key.traffic_class, ip + 1);
  copy_field(key.hop_limit, ip + 8);
  // On the wire the first bit is the highest.
  const unsigned bits = static_cast<unsigned>(ip[6]) >> 5;
  key.fragment = static_cast<std::uint8_t>((bits & 2) | bits >> 2 | (bits & 1) << 2);
}

void put_ipv6(FrameKey& key, const std::byte* ip) {
  copy_field(key.src_ip, ip + 8);
  copy_field(key.dst_ip, ip + 24);
  key.traffic_class = static_cast<std::uint8_t>(static_cast<unsigned>(ip[0] & std::byte{0x0f}) << 4 |
                                                static_cast<unsigned>(ip[1]) >> 4);
  copy_field(key.hop_limit, ip + 7);
  const std::byte label[4] = {std::byte{0}, ip[1] & std::byte{0x0f}, ip[2], ip[3]};
  copy_field(key.flow_label, label);
}

}  // namespace

FrameKey key_of(std::span<const std::byte> frame, const wire::FrameLayout& layout) {
  FrameKey key{};
  if (frame.size() < wire::EthernetHeader::kBytes) return key;
  copy_field(key.dst_mac, frame.data());
  copy_field(key.src_mac, frame.data() + kMacBytes);
  copy_field(key.ether_type, frame.data() + layout.ether_type);
  if (layout.vlan) copy_field(key.vlan_tag, frame.data() + wire::EthernetHeader::kBytes);
  if (layout.ipv4) put_ipv4(key, frame.data() + layout.network);
  if (layout.ipv6) put_ipv6(key, frame.data() + layout.network);
  if (layout.ipv4 || layout.ipv6) key.protocol = layout.protocol;
  if (layout.transport != 0) {
    copy_field(key.src_port, frame.data() + layout.transport);
    copy_field(key.dst_port, frame.data() + layout.transport + 2);
  }
  key.layers = static_cast<std::uint8_t>((layout.vlan ? kLayerVlan : 0) | (layout.ipv4 ? kLayerIpv4 : 0) |
                                         (layout.ipv6 ? kLayerIpv6 : 0) | (layout.tcp ? kLayerTcp : 0) |
                                         (layout.udp ? kLayerUdp : 0) | (layout.fragment ? kLayerFragment : 0));
  return key;
}

std::uint32_t choose(const RssTarget& rss, const FrameKey& key) {
  std::array<std::byte, 36> data;
  std::size_t bytes = 0;
  const unsigned layers = key.layers & ((key.layers & kLayerFragment) != 0 ? kLayerIpv4 | kLayerIpv6 : ~0u);
  const auto take = [&](unsigned layer, unsigned field, const auto& from, std::size_t length) {
    if ((layers & layer) == 0 || (rss.fields & field) == 0) return;
    std::memcpy(data.data() + bytes, &from, length);
    bytes += length;
  };
  take(kLayerIpv4, kRssSrcIpv4, key.src_ip, 4);
  take(kLayerIpv6, kRssSrcIpv6, key.src_ip, 16);
  take(kLayerIpv4, kRssDstIpv4, key.dst_ip, 4);
  take(kLayerIpv6, kRssDstIpv6, key.dst_ip, 16);
  take(kLayerTcp, kRssSrcPortTcp, key.src_port, 2);
  take(kLayerUdp, kRssSrcPortUdp, key.src_port, 2);
  take(kLayerTcp, kRssDstPortTcp, key.dst_port, 2);
  take(kLayerUdp, kRssDstPortUdp, key.dst_port, 2);
  const std::uint32_t hash = wire::toeplitz(rss.key, std::span(data).first(bytes));
  return rss.qps[hash & (rss.qps.size() - 1)];
}

FlowTable::Rule FlowTable::rule_of(const Flow& flow) {
  Rule rule{};
  if (flow.type == FlowType::kNormal) {
    rule.value = std::bit_cast<Words>(flow.value);
    rule.mask = std::bit_cast<Words>(flow.mask);
    for (std::size_t i = 0; i < rule.value.size(); ++i) rule.value[i] &= rule.mask[i];
  } else if (flow.type == FlowType::kMcDefault) {
    FrameKey group{};
    group.dst_mac[0] = 1;
    rule.value = rule.mask = std::bit_cast<Words>(group);
  }
  return rule;
}

bool FlowTable::add(std::uint64_t id, Flow flow) {
  if (flows_.size() + sniffers_.size() == kMaxFlows) return false;
  if (flow.type == FlowType::kSniffer) {
    sniffers_.push_back({id, std::move(flow)});
    return true;
  }
  const auto order = [](const Flow& of) { return std::pair(rank(of.type), of.priority); };
  const auto place =
      std::ranges::upper_bound(flows_, order(flow), {}, [&](const Entry& e) { return order(e.flow); });
  rules_.insert(rules_.begin() + (place - flows_.begin()), rule_of(flow));
  flows_.insert(place, {id, std::move(flow)});
  return true;
}

void FlowTable::remove(std::uint64_t id) {
  std::erase_if(sniffers_, [id](const Entry& entry) { return entry.id == id; });
  const auto found = std::ranges::find(flows_, id, &Entry::id);
  if (found == flows_.end()) return;
  rules_.erase(rules_.begin() + (found - flows_.begin()));
  flows_.erase(found);
}

bool FlowTable::deliver(const Flow& flow, std::size_t bytes, const FrameKey& key, std::span<FlowTarget> out,
                        std::size_t& count) {
  if (!flow.drop) {
    if (count == out.size()) return false;
    out[count++] = {flow.rss != nullptr ? choose(*flow.rss, key) : flow.qp, flow.tag};
  }
  if (flow.count != nullptr) {
    flow.count->packets.fetch_add(1, std::memory_order_relaxed);
    flow.count->bytes.fetch_add(bytes, std::memory_order_relaxed);
  }
  return true;
}

std::size_t FlowTable::classify(std::span<const std::byte> frame, const FrameKey& key,
                                std::span<FlowTarget> out) const {
  out = out.first(std::min(out.size(), kMaxCopies));
  const Words words = std::bit_cast<Words>(key);
  const auto matches = [&words](const Rule& rule) {
    std::uint64_t differs = 0;
    for (std::size_t i = 0; i < words.size(); ++i) differs |= (words[i] & rule.mask[i]) ^ rule.value[i];
    return differs == 0;
  };
  std::size_t count = 0;
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    if (!matches(rules_[i])) continue;
    const Flow& keeper = flows_[i].flow;
    if (!deliver(keeper, frame.size(), key, out, count) || keeper.drop) return count;
    if (keeper.dont_trap) continue;
    for (std::size_t same = i + 1; same < rules_.size(); ++same) {
      const Flow& flow = flows_[same].flow;
      if (flow.priority != keeper.priority || flow.type != keeper.type) break;
      if (rules_[same] == rules_[i] && !deliver(flow, frame.size(), key, out, count)) break;
    }
    break;
  }
  return count;
}

std::size_t FlowTable::sniffers(std::span<const std::byte> frame, std::span<FlowTarget> out) const {
  if (sniffers_.empty()) return 0;
  out = out.first(std::min(out.size(), kMaxCopies));
  std::size_t count = 0;
  const FrameKey key = key_of(frame, wire::layout_of(frame));
  for (const Entry& entry : sniffers_) {
    if (!deliver(entry.flow, frame.size(), key, out, count)) break;
  }
  return count;
}

bool FlowTable::wants_foreign(const wire::Mac& own) const {
  const auto foreign = [&own](const Entry& entry) {
    const Flow& flow = entry.flow;
    if (flow.drop || flow.type == FlowType::kMcDefault) return false;
    if (flow.type != FlowType::kNormal) return true;
    wire::Mac only{};  // the matching unicast address, if there is exactly one
    for (std::size_t i = 0; i < only.size(); ++i) {
      const unsigned mask = flow.mask.dst_mac[i] | (i == 0 ? 1u : 0u);
      if (mask != 0xff) return (flow.mask.dst_mac[0] & flow.value.dst_mac[0] & 1) == 0;
      only[i] = flow.value.dst_mac[i];
    }
    if ((flow.mask.dst_mac[0] & 1) == 0) only[0] &= 0xfe;
    return (only[0] & 1) == 0 && only != own;
  };
  return std::ranges::any_of(sniffers_, foreign) || std::ranges::any_of(flows_, foreign);
}

}  // namespace uroce::net
