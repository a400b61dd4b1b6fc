#include "wire/frame_template.h"

#include <algorithm>
#include <cstring>

#include "wire/bytes.h"
#include "wire/network_headers.h"

namespace uroce::wire {

std::uint16_t source_port(std::uint32_t flow_label, Qpn local, Qpn remote) {
  if (flow_label == 0) {
    std::uint64_t v = std::uint64_t{local.value} * remote.value;
    v ^= v >> 20;
    v ^= v >> 40;
    flow_label = static_cast<std::uint32_t>(v & 0xfffff);
  }
  return static_cast<std::uint16_t>(0xc000 | ((flow_label & 0x3fff) ^ ((flow_label & 0xfc000) >> 14)));
}

FrameTemplate::FrameTemplate(const PathAddress& path) : v4_(path.dest.is_v4()) {
  const auto traffic_class = static_cast<std::uint8_t>((path.traffic_class & 0xfc) | (path.ecn & 3));
  std::byte* at = bytes_.data();
  const std::uint16_t type = v4_ ? kEtherTypeIpv4 : kEtherTypeIpv6;
  EthernetHeader{path.dest_mac, path.source_mac, path.vlan ? kEtherTypeVlan : type}.emit(at);
  at += EthernetHeader::kBytes;
  if (path.vlan) {
    VlanTag{*path.vlan, type}.emit(at);
    at += VlanTag::kBytes;
  }
  ip_offset_ = static_cast<std::uint8_t>(at - bytes_.data());
  if (v4_) {
    Ipv4Header ip;
    ip.traffic_class = traffic_class;
    ip.ttl = path.hop_limit;
    std::copy_n(path.source.bytes.begin() + 12, 4, ip.source.begin());
    std::copy_n(path.dest.bytes.begin() + 12, 4, ip.dest.begin());
    ip.emit(at);
    ip_sum_ = ipv4_header_sum(at);
    at += Ipv4Header::kBytes;
  } else {
    Ipv6Header ip;
    ip.traffic_class = traffic_class;
    ip.flow_label = path.flow_label;
    ip.hop_limit = path.hop_limit;
    ip.source = path.source.bytes;
    ip.dest = path.dest.bytes;
    ip.emit(at);
    at += Ipv6Header::kBytes;
  }
  UdpHeader{path.source_port, kRoceUdpPort, 0, 0}.emit(at);
  header_bytes_ = static_cast<std::uint8_t>(at + UdpHeader::kBytes - bytes_.data());
}

std::size_t FrameTemplate::emit(std::byte* to, std::size_t ib_bytes, bool offload_checksum) const {
  const std::size_t bytes = header_bytes_;
  const std::size_t udp_bytes = ib_bytes + UdpHeader::kBytes;
  std::byte* const ip = to + ip_offset_;
  // Fixed sizes that overlap: 42 to 46 bytes with IPv4, 62 to 66 with IPv6.
  std::memcpy(to, bytes_.data(), 32);
  if (v4_) {
    std::memcpy(to + bytes - 16, bytes_.data() + bytes - 16, 16);
    const auto total = swap_bytes(static_cast<std::uint16_t>(udp_bytes + Ipv4Header::kBytes));
    store_raw(ip + 2, total);
    if (!offload_checksum) {
      std::uint32_t sum = ip_sum_ + total;
      sum = (sum & 0xffff) + (sum >> 16);
      store_raw(ip + 10, static_cast<std::uint16_t>(~sum));
    }
  } else {
    std::memcpy(to + 32, bytes_.data() + 32, 16);
    std::memcpy(to + bytes - 32, bytes_.data() + bytes - 32, 32);
    store16(ip + 4, static_cast<std::uint16_t>(udp_bytes));
  }
  store16(to + bytes - 4, static_cast<std::uint16_t>(udp_bytes));
  return bytes;
}

std::size_t FrameTemplate::emit_not_ect(std::byte* to, std::size_t ib_bytes, bool offload_checksum) const {
  const std::size_t bytes = emit(to, ib_bytes, offload_checksum);
  std::byte* const ip = to + ip_offset_;
  if (!v4_) {
    ip[1] &= std::byte{0xcf};
    return bytes;
  }
  ip[1] &= std::byte{0xfc};
  if (!offload_checksum) {
    store_raw(ip + 10, std::uint16_t{0});
    store_raw(ip + 10, static_cast<std::uint16_t>(~ipv4_header_sum(ip)));
  }
  return bytes;
}

}  // namespace uroce::wire
