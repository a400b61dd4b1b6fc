#include "wire/network_headers.h"

#include <cstring>

namespace uroce::wire {

std::uint32_t ones_complement_sum(std::span<const std::byte> bytes, std::uint32_t sum) {
  std::uint64_t total = sum;
  std::size_t at = 0;
  for (; at + 2 <= bytes.size(); at += 2) total += load16(&bytes[at]);
  if (at < bytes.size()) total += static_cast<std::uint32_t>(load8(&bytes[at])) << 8;
  while (total >> 16 != 0) total = (total & 0xffff) + (total >> 16);
  return static_cast<std::uint32_t>(total);
}

std::uint16_t internet_checksum(std::span<const std::byte> bytes, std::uint32_t sum) {
  return static_cast<std::uint16_t>(~ones_complement_sum(bytes, sum));
}

EthernetHeader EthernetHeader::parse(const std::byte* from) {
  EthernetHeader header;
  std::memcpy(header.dest.data(), from, 6);
  std::memcpy(header.source.data(), from + 6, 6);
  header.type = load16(from + 12);
  return header;
}
void EthernetHeader::emit(std::byte* to) const {
  std::memcpy(to, dest.data(), 6);
  std::memcpy(to + 6, source.data(), 6);
  store16(to + 12, type);
}

Ipv4Header Ipv4Header::parse(const std::byte* from) {
  Ipv4Header header;
  header.version = load8(from) >> 4;
  header.header_words = load8(from) & 15;
  header.traffic_class = load8(from + 1);
  header.total_length = load16(from + 2);
  header.identification = load16(from + 4);
  header.fragment = load16(from + 6);
  header.ttl = load8(from + 8);
  header.protocol = load8(from + 9);
  header.checksum = load16(from + 10);
  std::memcpy(header.source.data(), from + 12, 4);
  std::memcpy(header.dest.data(), from + 16, 4);
  return header;
}
void Ipv4Header::emit(std::byte* to) const {
  store8(to, static_cast<std::uint8_t>(version << 4 | header_words));
  store8(to + 1, traffic_class);
  store16(to + 2, total_length);
  store16(to + 4, identification);
  store16(to + 6, fragment);
  store8(to + 8, ttl);
  store8(to + 9, protocol);
  store16(to + 10, checksum);
  std::memcpy(to + 12, source.data(), 4);
  std::memcpy(to + 16, dest.data(), 4);
}
std::uint16_t Ipv4Header::right_checksum() const {
  std::array<std::byte, kBytes> bytes;
  Ipv4Header blank = *this;
  blank.checksum = 0;
  blank.emit(bytes.data());
  return internet_checksum(bytes);
}

Ipv6Header Ipv6Header::parse(const std::byte* from) {
  const std::uint32_t first = load32(from);
  Ipv6Header header;
  header.version = static_cast<std::uint8_t>(first >> 28);
  header.traffic_class = static_cast<std::uint8_t>(first >> 20);
  header.flow_label = first & 0xfffff;
  header.payload_length = load16(from + 4);
  header.next_header = load8(from + 6);
  header.hop_limit = load8(from + 7);
  std::memcpy(header.source.data(), from + 8, 16);
  std::memcpy(header.dest.data(), from + 24, 16);
  return header;
}
void Ipv6Header::emit(std::byte* to) const {
  store32(to, std::uint32_t{version} << 28 | std::uint32_t{traffic_class} << 20 | (flow_label & 0xfffff));
  store16(to + 4, payload_length);
  store8(to + 6, next_header);
  store8(to + 7, hop_limit);
  std::memcpy(to + 8, source.data(), 16);
  std::memcpy(to + 24, dest.data(), 16);
}

}  // namespace uroce::wire
