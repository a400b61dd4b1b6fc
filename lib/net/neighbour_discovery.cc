// Neighbour solicitation and advertisement (RFC 4861, 4.3, 4.4, 7).
#include "net/link_impl.h"

namespace uroce::net {
namespace {

constexpr std::size_t kIp6Bytes = 40, kNdBytes = 24, kOptionBytes = 8;
constexpr std::uint8_t kSolicitation = 135, kAdvertisement = 136;
constexpr std::uint8_t kSourceOption = 1, kTargetOption = 2;
constexpr std::uint32_t kSolicited = 0x40000000, kOverride = 0x20000000;

/// Validation of both messages (RFC 4861, 7.1.1, 7.1.2). False: malformed.
bool well_formed(std::span<const std::byte> ip) {
  const std::span<const std::byte> nd = ip.subspan(kIp6Bytes);
  if (wire::load8(ip.data() + 7) != 255 || nd.size() < kNdBytes || wire::load8(nd.data() + 1) != 0) return false;
  if (wire::load_ipv6(nd.data() + 8).is_multicast()) return false;
  for (std::span<const std::byte> rest = nd.subspan(kNdBytes); !rest.empty();) {
    if (rest.size() < 2) return false;
    const std::size_t bytes = std::size_t{8} * wire::load8(rest.data() + 1);
    if (bytes == 0 || bytes > rest.size()) return false;
    rest = rest.subspan(bytes);
  }
  return true;
}

/// The link-layer address option of `type`. False: there is none.
bool find_option(std::span<const std::byte> ip, std::uint8_t type, wire::Mac& mac) {
  for (std::span<const std::byte> rest = ip.subspan(kIp6Bytes + kNdBytes); !rest.empty();) {
    const std::size_t bytes = std::size_t{8} * wire::load8(rest.data() + 1);
    if (wire::load8(rest.data()) == type && bytes == kOptionBytes) {
      mac = wire::load_mac(rest.data() + 2);
      return true;
    }
    rest = rest.subspan(bytes);
  }
  return false;
}

/// `option` 0: without the link-layer address.
void emit(std::byte* ip, const wire::Address& from, const wire::Address& to, std::uint8_t type, std::uint32_t flags,
          const wire::Address& target, std::uint8_t option, const wire::Mac& mac) {
  const std::size_t body = option != 0 ? kNdBytes + kOptionBytes : kNdBytes;
  wire::store16(ip, 0x6000);
  wire::store16(ip + 2, 0);
  wire::store16(ip + 4, static_cast<std::uint16_t>(body));
  wire::store8(ip + 6, wire::kProtocolIcmpV6);
  wire::store8(ip + 7, 255);
  wire::store_ipv6(ip + 8, from);
  wire::store_ipv6(ip + 24, to);
  std::byte* nd = ip + kIp6Bytes;
  wire::store8(nd, type);
  wire::store8(nd + 1, 0);
  wire::store16(nd + 2, 0);
  wire::store16(nd + 4, flags >> 16);
  wire::store16(nd + 6, flags & 0xffff);
  wire::store_ipv6(nd + 8, target);
  if (option != 0) {
    wire::store8(nd + 24, option);
    wire::store8(nd + 25, 1);
    wire::store_mac(nd + 26, mac);
  }
  const auto pseudo = static_cast<std::uint32_t>(body + wire::kProtocolIcmpV6);
  wire::store16(nd + 2, wire::internet_checksum({nd, body}, wire::ones_complement_sum({ip + 8, 32}, pseudo)));
}

struct SolicitedNode {
  wire::Address group;
  wire::Mac mac;
};
/// RFC 4291, 2.7.1.
SolicitedNode solicited_node(const wire::Address& target) {
  const auto& t = target.bytes;
  SolicitedNode to{{}, {0x33, 0x33, 0xff, t[13], t[14], t[15]}};
  to.group.bytes = {0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, t[13], t[14], t[15]};
  return to;
}

}  // namespace

void LinkStack::Impl::receive_solicitation(const LinkFrame& frame, std::span<const std::byte> ip, Nanos now) {
  ++counters.solicitations;
  if (!well_formed(ip)) {
    ++counters.malformed;
    return;
  }
  const wire::Address source = wire::load_ipv6(ip.data() + 8), target = wire::load_ipv6(ip.data() + kIp6Bytes + 8);
  wire::Mac mac{};
  const bool has_mac = find_option(ip, kSourceOption, mac);
  if (!local(target)) {
    ++counters.ignored;
    return;
  }
  if (source == wire::Address{}) {  // duplicate address detection (RFC 4862, 5.4)
    if (has_mac) {
      ++counters.malformed;
      return;
    }
    return defend(target, frame.source, now);
  }
  if (local(source)) return defend(source, frame.source, now);
  if (has_mac) learn(source, mac, now);
  if (kernel_answers_for(target)) return;
  answered = true;
  send_advertisement(has_mac && wire::is_unicast(mac) ? mac : frame.source, source, target, true);
}

void LinkStack::Impl::receive_advertisement(const LinkFrame& frame, std::span<const std::byte> ip, Nanos now) {
  ++counters.advertisements;
  const bool to_group = wire::load_ipv6(ip.data() + 24).is_multicast();
  const bool good = well_formed(ip);
  const std::uint32_t flags = good ? wire::load32(ip.data() + kIp6Bytes + 4) : 0;
  if (!good || (to_group && (flags & kSolicited) != 0)) {
    ++counters.malformed;
    return;
  }
  const wire::Address target = wire::load_ipv6(ip.data() + kIp6Bytes + 8);
  if (local(target)) return defend(target, frame.source, now);
  wire::Mac mac{};
  Neighbour* known = table.find(target);
  if (known == nullptr) return;
  if (!find_option(ip, kTargetOption, mac)) {
    // The answer to a unicast solicitation may omit the link-layer address (RFC 4861, 4.4).
    if (known->state == Neighbour::State::kReachable && (flags & kSolicited) != 0) confirm(target, known->mac, now);
    return;
  }
  const bool different = known->state == Neighbour::State::kReachable && known->mac != mac;
  if (different && (flags & kOverride) == 0) return;
  confirm(target, mac, now);
}

void LinkStack::Impl::send_solicitation(const wire::Address& target, const wire::Mac* unicast) {
  const wire::Address* from = source_for(target);
  if (from == nullptr) return;
  const auto [group, group_mac] = solicited_node(target);
  const auto body = start_frame(unicast != nullptr ? *unicast : group_mac, wire::kEtherTypeIpv6,
                                kIp6Bytes + kNdBytes + kOptionBytes);
  if (body.empty()) return;
  emit(body.data(), *from, unicast != nullptr ? target : group, kSolicitation, 0, target, kSourceOption,
       config.mac);
}

void LinkStack::Impl::send_duplicate_detection(const wire::Address& target) {
  const auto [group, group_mac] = solicited_node(target);
  const auto body = start_frame(group_mac, wire::kEtherTypeIpv6, kIp6Bytes + kNdBytes);
  if (!body.empty()) emit(body.data(), {}, group, kSolicitation, 0, target, 0, config.mac);
}

void LinkStack::Impl::send_advertisement(const wire::Mac& to_mac, const wire::Address& to,
                                         const wire::Address& target, bool solicited) {
  const auto body = start_frame(to_mac, wire::kEtherTypeIpv6, kIp6Bytes + kNdBytes + kOptionBytes);
  if (body.empty()) return;
  emit(body.data(), target, to, kAdvertisement, (solicited ? kSolicited : 0) | kOverride, target, kTargetOption,
       config.mac);
}

}  // namespace uroce::net
