// ARP for IPv4 over Ethernet (RFC 826; announcements and conflicts as RFC 5227).
#include "net/link_impl.h"

namespace uroce::net {
namespace {

constexpr std::size_t kArpBytes = 28;
constexpr std::uint16_t kRequest = 1, kReply = 2;

}  // namespace

void LinkStack::Impl::receive_arp(const LinkFrame& frame, Nanos now) {
  const std::byte* arp = frame.body.data();
  if (frame.body.size() < kArpBytes || wire::load16(arp) != 1 || wire::load16(arp + 2) != wire::kEtherTypeIpv4 ||
      wire::load8(arp + 4) != 6 || wire::load8(arp + 5) != 4) {
    ++counters.malformed;
    return;
  }
  const std::uint16_t operation = wire::load16(arp + 6);
  const wire::Mac sender_mac = wire::load_mac(arp + 8);
  const wire::Address sender = wire::load_ipv4(arp + 14), target = wire::load_ipv4(arp + 24);
  if (operation == kRequest) ++counters.arp_requests;
  if (operation == kReply) ++counters.arp_replies;
  // A sender address that differs from the frame's source is forged or relayed: proxies answer with their own.
  if ((operation != kRequest && operation != kReply) || sender_mac != frame.source) {
    ++counters.malformed;
    return;
  }
  if (local(sender)) return defend(sender, sender_mac, now);
  if (!local(target)) return confirm(sender, sender_mac, now);
  if (operation == kReply) return confirm(sender, sender_mac, now);
  learn(sender, sender_mac, now);
  if (kernel_answers_for(target)) return;
  answered = true;
  send_arp(false, sender_mac, sender_mac, target, sender);
}

void LinkStack::Impl::send_arp(bool request, const wire::Mac& to, const wire::Mac& target_mac,
                               const wire::Address& sender, const wire::Address& target) {
  const std::span<std::byte> body = start_frame(to, wire::kEtherTypeArp, kArpBytes);
  if (body.empty()) return;
  std::byte* arp = body.data();
  wire::store16(arp, 1);  // Ethernet
  wire::store16(arp + 2, wire::kEtherTypeIpv4);
  wire::store8(arp + 4, 6);
  wire::store8(arp + 5, 4);
  wire::store16(arp + 6, request ? kRequest : kReply);
  wire::store_mac(arp + 8, config.mac);
  wire::store_ipv4(arp + 14, sender);
  wire::store_mac(arp + 18, target_mac);
  wire::store_ipv4(arp + 24, target);
}

}  // namespace uroce::net
