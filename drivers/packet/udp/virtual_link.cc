#include "drivers/packet/udp/virtual_link.h"

#include <algorithm>
#include <cstring>

#include "wire/network_headers.h"

namespace uroce::udp {
namespace {

constexpr std::size_t kEthernet = wire::EthernetHeader::kBytes, kIp6 = wire::Ipv6Header::kBytes;
constexpr std::size_t kArpBytes = 28;
constexpr std::uint16_t kArpRequest = 1, kArpReply = 2;
// RFC 4861, 4.3 and 4.4: the message and its option with the MAC address.
constexpr std::size_t kNdBytes = 24, kOptionBytes = 8;
constexpr std::uint8_t kSolicitation = 135, kAdvertisement = 136, kTargetOption = 2;
constexpr std::uint16_t kSolicitedOverride = 0x6000;

void answer_to(std::byte* frame, const wire::Mac& from, const wire::Mac& to) {
  wire::store_mac(frame, to);
  wire::store_mac(frame + 6, from);
}

bool answer_arp(base::Frame& frame, const wire::Mac& own) {
  std::byte* const arp = frame.data + kEthernet;
  if (frame.length < kEthernet + kArpBytes || wire::load16(arp + 6) != kArpRequest) return false;
  const wire::Address sender = wire::load_ipv4(arp + 14), target = wire::load_ipv4(arp + 24);
  if (sender == target) return false;
  const wire::Mac mac = mac_of(target, own);
  answer_to(frame.data, mac, own);
  wire::store16(arp + 6, kArpReply);
  wire::store_mac(arp + 8, mac);
  wire::store_ipv4(arp + 14, target);
  wire::store_mac(arp + 18, own);
  wire::store_ipv4(arp + 24, sender);
  return true;
}

bool answer_solicitation(base::Frame& frame, const wire::Mac& own) {
  constexpr std::size_t kBody = kNdBytes + kOptionBytes;
  std::byte* const ip = frame.data + kEthernet;
  std::byte* const nd = ip + kIp6;
  if (frame.length < kEthernet + kIp6 + kBody || wire::load8(ip + 6) != wire::kProtocolIcmpV6 ||
      wire::load8(nd) != kSolicitation) {
    return false;
  }
  const wire::Address sender = wire::load_ipv6(ip + 8), target = wire::load_ipv6(nd + 8);
  if (sender == target || sender == wire::Address{}) return false;
  const wire::Mac mac = mac_of(target, own);
  answer_to(frame.data, mac, own);
  wire::store16(ip + 4, kBody);
  wire::store_ipv6(ip + 8, target);
  wire::store_ipv6(ip + 24, sender);
  wire::store8(nd, kAdvertisement);
  wire::store16(nd + 2, 0);
  wire::store16(nd + 4, kSolicitedOverride);
  wire::store8(nd + 24, kTargetOption);
  wire::store_mac(nd + 26, mac);
  const std::uint32_t pseudo = wire::ones_complement_sum({ip + 8, 32}, kBody + wire::kProtocolIcmpV6);
  wire::store16(nd + 2, wire::internet_checksum({nd, kBody}, pseudo));
  frame.length = kEthernet + kIp6 + kBody;
  return true;
}

}  // namespace

wire::Mac mac_of(const wire::Address& address, const wire::Mac& own) {
  wire::Mac mac{0x02, 0x00};
  if (address.is_v4()) {
    std::copy_n(address.bytes.begin() + 12, 4, mac.begin() + 2);
  } else {
    std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
    for (const std::uint8_t byte : address.bytes) hash = (hash ^ byte) * 0x100000001b3u;
    for (std::size_t i = 1; i < mac.size(); ++i) mac[i] = static_cast<std::uint8_t>(hash >> (8 * i));
  }
  if (mac == own) mac[0] |= 0x04;
  return mac;
}

bool answer(base::Frame& frame, const wire::Mac& own) {
  if (frame.length < kEthernet) return false;
  const std::uint16_t type = wire::load16(frame.data + 12);
  const bool answered = type == wire::kEtherTypeArp    ? answer_arp(frame, own)
                        : type == wire::kEtherTypeIpv6 ? answer_solicitation(frame, own)
                                                       : false;
  if (answered) frame.flags = frame.sender = 0;
  return answered;
}

}  // namespace uroce::udp
