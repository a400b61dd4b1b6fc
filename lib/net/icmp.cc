// Echo replies over IPv4 (RFC 792) and IPv6 (RFC 4443), and the checks of the IP headers before them.
#include <algorithm>

#include "net/link_impl.h"

namespace uroce::net {
namespace {

constexpr std::size_t kIp4Bytes = 20, kIp6Bytes = 40, kIcmpBytes = 8;
constexpr std::uint8_t kEchoReply4 = 0, kEchoRequest4 = 8, kEchoRequest6 = 128, kEchoReply6 = 129;
constexpr std::uint8_t kSolicitation = 135, kAdvertisement = 136;
constexpr std::uint8_t kHopByHop = 0;

/// Sum of the pseudo header of ICMPv6 (RFC 8200, 8.1) over `ip` with a payload of `bytes`.
std::uint32_t pseudo_sum(const std::byte* ip, std::size_t bytes) {
  return wire::ones_complement_sum({ip + 8, 32}, static_cast<std::uint32_t>(bytes) + wire::kProtocolIcmpV6);
}

}  // namespace

void LinkStack::Impl::receive_ipv4(const LinkFrame& frame, Nanos now) {
  const std::byte* ip = frame.body.data();
  if (frame.body.size() >= kIp4Bytes && receive_igmp(frame.body, now)) return;
  if (frame.body.size() < kIp4Bytes || wire::load8(ip) != 0x45 || wire::load16(ip + 2) < kIp4Bytes ||
      wire::load16(ip + 2) > frame.body.size() || wire::ones_complement_sum({ip, kIp4Bytes}) != 0xffff) {
    ++counters.malformed;
    return;
  }
  const bool fragment = (wire::load16(ip + 6) & 0x3fff) != 0;
  const wire::Address destination = wire::load_ipv4(ip + 16);
  if (fragment || wire::load8(ip + 9) != wire::kProtocolIcmp || frame.destination != config.mac ||
      !local(destination) || kernel_answers_for(destination)) {
    ++counters.ignored;
    return;
  }
  answer_echo4(frame, frame.body.first(wire::load16(ip + 2)));
}

void LinkStack::Impl::answer_echo4(const LinkFrame& frame, std::span<const std::byte> ip) {
  const std::span<const std::byte> icmp = ip.subspan(kIp4Bytes);
  if (icmp.size() < kIcmpBytes || wire::ones_complement_sum(icmp) != 0xffff) {
    ++counters.malformed;
    return;
  }
  const wire::Address source = wire::load_ipv4(ip.data() + 12);
  const bool from_one =
      !source.is_multicast() && wire::load8(ip.data() + 12) != 0 && wire::load8(ip.data() + 12) < 224;
  if (wire::load8(icmp.data()) != kEchoRequest4 || wire::load8(icmp.data() + 1) != 0 || !from_one ||
      local(source) || ip.size() > config.mtu) {
    ++counters.ignored;
    return;
  }
  answered = true;
  const std::span<std::byte> reply = start_frame(frame.source, wire::kEtherTypeIpv4, ip.size());
  if (reply.empty()) return;
  ++counters.echo_requests;
  std::byte* to = reply.data();
  wire::store8(to, 0x45);
  wire::store8(to + 1, wire::load8(ip.data() + 1) & 0xfc);
  wire::store16(to + 2, static_cast<unsigned>(ip.size()));
  wire::store16(to + 4, 0);
  wire::store16(to + 6, 0x4000);  // don't fragment
  wire::store8(to + 8, 64);
  wire::store8(to + 9, wire::kProtocolIcmp);
  std::memcpy(to + 12, ip.data() + 16, 4);
  std::memcpy(to + 16, ip.data() + 12, 4);
  wire::store16(to + 10, 0);
  wire::store16(to + 10, wire::internet_checksum({to, kIp4Bytes}));
  std::byte* body = to + kIp4Bytes;
  std::memcpy(body, icmp.data(), icmp.size());
  wire::store8(body, kEchoReply4);
  wire::store16(body + 2, 0);
  wire::store16(body + 2, wire::internet_checksum({body, icmp.size()}));
}

void LinkStack::Impl::receive_ipv6(const LinkFrame& frame, Nanos now) {
  const std::byte* ip = frame.body.data();
  if (frame.body.size() < kIp6Bytes || wire::load8(ip) >> 4 != 6 ||
      kIp6Bytes + wire::load16(ip + 4) > frame.body.size()) {
    ++counters.malformed;
    return;
  }
  if (wire::load8(ip + 6) == kHopByHop) return receive_query6(frame, now);
  if (wire::load8(ip + 6) != wire::kProtocolIcmpV6) {
    ++counters.ignored;
    return;
  }
  const std::span<const std::byte> packet = frame.body.first(kIp6Bytes + wire::load16(ip + 4));
  const std::span<const std::byte> icmp = packet.subspan(kIp6Bytes);
  if (icmp.size() < kIcmpBytes || wire::ones_complement_sum(icmp, pseudo_sum(ip, icmp.size())) != 0xffff ||
      wire::load_ipv6(ip + 8).is_multicast()) {
    ++counters.malformed;
    return;
  }
  switch (wire::load8(icmp.data())) {
    case kSolicitation: return receive_solicitation(frame, packet, now);
    case kAdvertisement: return receive_advertisement(frame, packet, now);
    case kEchoRequest6: return answer_echo6(frame, packet);
    default: ++counters.ignored;
  }
}

// Only MLD queries are accepted after hop-by-hop options.
void LinkStack::Impl::receive_query6(const LinkFrame& frame, Nanos now) {
  const std::byte* ip = frame.body.data();
  const std::span<const std::byte> rest = frame.body.subspan(kIp6Bytes, wire::load16(ip + 4));
  const std::size_t options = rest.size() < 8 ? 8 : 8 * (std::size_t{1} + wire::load8(rest.data() + 1));
  if (rest.size() < options || wire::load8(rest.data()) != wire::kProtocolIcmpV6) {
    ++counters.ignored;
    return;
  }
  const std::span<const std::byte> icmp = rest.subspan(options);
  if (icmp.size() < kIcmpBytes || wire::ones_complement_sum(icmp, pseudo_sum(ip, icmp.size())) != 0xffff) {
    ++counters.malformed;
    return;
  }
  receive_mld(icmp, now);
}

void LinkStack::Impl::answer_echo6(const LinkFrame& frame, std::span<const std::byte> ip) {
  const std::span<const std::byte> icmp = ip.subspan(kIp6Bytes);
  const wire::Address source = wire::load_ipv6(ip.data() + 8), destination = wire::load_ipv6(ip.data() + 24);
  if (frame.destination != config.mac || !local(destination) || kernel_answers_for(destination) ||
      wire::load8(icmp.data() + 1) != 0 || local(source) || source == wire::Address{} || ip.size() > config.mtu) {
    ++counters.ignored;
    return;
  }
  answered = true;
  const std::span<std::byte> reply = start_frame(frame.source, wire::kEtherTypeIpv6, ip.size());
  if (reply.empty()) return;
  ++counters.echo_requests;
  std::byte* to = reply.data();
  std::fill_n(to, 4, std::byte{0});
  wire::store8(to, 0x60);
  wire::store16(to + 4, static_cast<unsigned>(icmp.size()));
  wire::store8(to + 6, wire::kProtocolIcmpV6);
  wire::store8(to + 7, 64);
  wire::store_ipv6(to + 8, destination);
  wire::store_ipv6(to + 24, source);
  std::byte* body = to + kIp6Bytes;
  std::memcpy(body, icmp.data(), icmp.size());
  wire::store8(body, kEchoReply6);
  wire::store16(body + 2, 0);
  wire::store16(body + 2, wire::internet_checksum({body, icmp.size()}, pseudo_sum(to, icmp.size())));
}

}  // namespace uroce::net
