#include "wire/ethernet_frame.h"

#include <algorithm>

#include "wire/network_headers.h"

namespace uroce::wire {
namespace {

constexpr std::size_t kEthernetBytes = EthernetHeader::kBytes;
constexpr std::size_t kIpv4Bytes = Ipv4Header::kBytes, kIpv6Bytes = Ipv6Header::kBytes;
constexpr std::size_t kTcpBytes = 20, kUdpBytes = UdpHeader::kBytes;
constexpr std::size_t kMaxOffset = 0xffff;
constexpr int kMaxTags = 2;

constexpr std::uint8_t kHopByHop = 0, kRouting = 43, kFragment = 44, kDestinationOptions = 60;
constexpr std::uint8_t kFin = 0x01, kPsh = 0x08, kCwr = 0x80;
constexpr std::uint16_t kMoreFragments = 0x2000, kFragmentOffset = 0x1fff;  // IPv4
constexpr std::uint16_t kMoreFragments6 = 1, kFragmentOffset6 = 0xfff8;

/// Walks the headers of `frame` up to the innermost layer found.
class Walk {
 public:
  Walk(std::span<const std::byte> frame, bool trust_lengths)
      : frame_(frame.first(std::min(frame.size(), kMaxOffset))), trust_(trust_lengths) {}

  FrameLayout run() {
    if (frame_.size() < kEthernetBytes) return layout_;
    std::size_t at = kEthernetBytes;
    std::uint16_t type = load16(&frame_[12]);
    for (int tags = 0; tags < kMaxTags && (type == kEtherTypeVlan || type == kEtherTypeServiceVlan); ++tags) {
      if (frame_.size() < at + VlanTag::kBytes) break;
      if (!layout_.vlan) layout_.vlan_tci = load16(&frame_[at]);
      layout_.vlan = true;
      type = load16(&frame_[at + 2]);
      at += VlanTag::kBytes;
    }
    layout_.ether_type = static_cast<std::uint16_t>(at - 2);
    if (type == kEtherTypeIpv4) ipv4(at);
    if (type == kEtherTypeIpv6) ipv6(at);
    return layout_;
  }

 private:
  std::size_t left(std::size_t at) const { return end_ - at; }

  /// The datagram ends `bytes` after `at`, or at the end of the frame.
  void set_end(std::size_t at, std::size_t bytes) {
    end_ = trust_ ? std::min(at + bytes, frame_.size()) : frame_.size();
  }

  void ipv4(std::size_t at) {
    if (frame_.size() - at < kIpv4Bytes) return;
    const std::byte* ip = &frame_[at];
    const std::size_t header = (load8(ip) & 0xfu) * 4u;
    set_end(at, load16(ip + 2));
    if (load8(ip) >> 4 != 4 || header < kIpv4Bytes || header > frame_.size() - at) return;
    layout_.ipv4 = true;
    layout_.network = static_cast<std::uint16_t>(at);
    layout_.protocol = load8(ip + 9);
    const std::uint16_t fragment = load16(ip + 6);
    layout_.fragment = (fragment & (kMoreFragments | kFragmentOffset)) != 0;
    if ((fragment & kFragmentOffset) == 0 && at + header <= end_) transport(at + header);
  }

  void ipv6(std::size_t at) {
    if (frame_.size() - at < kIpv6Bytes) return;
    const std::byte* ip = &frame_[at];
    const std::size_t body = at + kIpv6Bytes;
    if (load8(ip) >> 4 != 6) return;
    set_end(body, load16(ip + 4));
    layout_.ipv6 = true;
    layout_.network = static_cast<std::uint16_t>(at);
    layout_.protocol = load8(ip + 6);
    for (at = body; extension(at);) continue;
  }

  /// Skips the extension header at `at`; false: there is none to skip, and the walk ends.
  bool extension(std::size_t& at) {
    const std::uint8_t kind = layout_.protocol;
    if (kind != kHopByHop && kind != kRouting && kind != kFragment && kind != kDestinationOptions) {
      transport(at);
      return false;
    }
    if (left(at) < 8) return false;
    const std::byte* header = &frame_[at];
    const std::size_t bytes = kind == kFragment ? 8u : 8u + load8(header + 1) * 8u;
    if (left(at) < bytes || (kind == kRouting && load8(header + 3) != 0)) return false;
    layout_.protocol = load8(header);
    at += bytes;
    if (kind != kFragment) return true;
    const std::uint16_t place = load16(header + 2);
    if ((place & (kMoreFragments6 | kFragmentOffset6)) != 0) layout_.fragment = true;
    return (place & kFragmentOffset6) == 0;
  }

  void transport(std::size_t at) {
    std::size_t header = 0;
    if (layout_.protocol == kProtocolTcp && left(at) >= kTcpBytes) {
      header = (load8(&frame_[at + 12]) >> 4) * 4u;
      layout_.tcp = header >= kTcpBytes && header <= left(at);
    } else if (layout_.protocol == kProtocolUdp && left(at) >= kUdpBytes) {
      header = kUdpBytes;
      layout_.udp = true;
    }
    if (!layout_.tcp && !layout_.udp) return;
    layout_.transport = static_cast<std::uint16_t>(at);
    layout_.payload = static_cast<std::uint16_t>(at + header);
  }

  std::span<const std::byte> frame_;
  bool trust_;
  std::size_t end_ = 0;  ///< of the datagram
  FrameLayout layout_;
};

/// One's complement sum of 16-bit words in memory order, the last one padded with 0 (RFC 1071).
std::uint64_t sum_words(const std::byte* from, std::size_t bytes) {
  std::uint64_t sum = 0;
  for (; bytes >= 4; from += 4, bytes -= 4) sum += load_raw<std::uint32_t>(from);
  if (bytes >= 2) {
    sum += load_raw<std::uint16_t>(from);
    from += 2;
    bytes -= 2;
  }
  if (bytes != 0) sum += load8(from);
  return sum;
}
/// Folded, in host order.
std::uint16_t fold(std::uint64_t sum) {
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return swap_bytes(static_cast<std::uint16_t>(sum));
}

/// The bytes that a frame's checksums cover, checked against its size: `layout` may belong to other lengths.
struct Covered {
  std::size_t header = 0;     ///< bytes of the IPv4 header
  std::size_t transport = 0;  ///< bytes of TCP or UDP; 0: none to be summed
};
Covered covered_by_checksums(std::span<const std::byte> frame, const FrameLayout& layout) {
  Covered covered;
  const std::size_t ip = layout.network;
  if ((!layout.ipv4 && !layout.ipv6) || frame.size() < ip + (layout.ipv4 ? kIpv4Bytes : kIpv6Bytes)) return covered;
  if (layout.ipv4) {
    const std::size_t header = (load8(&frame[ip]) & 0xfu) * 4u;
    if (header >= kIpv4Bytes && frame.size() >= ip + header) covered.header = header;
  }
  const std::size_t length = load16(&frame[ip + (layout.ipv4 ? 2 : 4)]) + (layout.ipv4 ? 0 : kIpv6Bytes);
  const std::size_t at = layout.transport, end = std::min(ip + length, frame.size());
  if (layout.fragment || !(layout.tcp || layout.udp) || end < at + (layout.tcp ? kTcpBytes : kUdpBytes))
    return covered;
  covered.transport = layout.udp ? load16(&frame[at + 4]) : end - at;
  if (ip + length > frame.size() || covered.transport > end - at || covered.transport < kUdpBytes) {
    covered.transport = 0;
  }
  return covered;
}

/// The sum over pseudo header and `bytes` of TCP or UDP, in host order: 0xffff where the checksum is right.
std::uint16_t transport_sum(std::span<const std::byte> frame, const FrameLayout& layout, std::size_t bytes) {
  const std::size_t addresses = layout.network + (layout.ipv4 ? 12u : 8u);
  std::uint64_t sum = sum_words(&frame[addresses], layout.ipv4 ? 8 : 32);
  sum += swap_bytes(static_cast<std::uint16_t>(layout.tcp ? kProtocolTcp : kProtocolUdp));
  sum += swap_bytes(static_cast<std::uint16_t>(bytes));
  return fold(sum + sum_words(&frame[layout.transport], bytes));
}

constexpr std::size_t kTcpChecksum = 16, kUdpChecksum = 6;  // offsets

}  // namespace

FrameLayout layout_of(std::span<const std::byte> frame) { return Walk(frame, true).run(); }
FrameLayout layout_of_headers(std::span<const std::byte> header) { return Walk(header, false).run(); }

bool checksums_good(std::span<const std::byte> frame, const FrameLayout& layout) {
  const Covered covered = covered_by_checksums(frame, layout);
  if (covered.transport == 0) return false;
  if (layout.ipv4 && fold(sum_words(&frame[layout.network], covered.header)) != 0xffff) return false;
  if (layout.udp && load16(&frame[layout.transport + kUdpChecksum]) == 0) return layout.ipv4;
  return transport_sum(frame, layout, covered.transport) == 0xffff;
}

void fill_checksums(std::span<std::byte> frame, const FrameLayout& layout) {
  const Covered covered = covered_by_checksums(frame, layout);
  if (covered.header != 0) {
    std::byte* ip = &frame[layout.network];
    store16(ip + 10, 0);
    store16(ip + 10, static_cast<std::uint16_t>(~fold(sum_words(ip, covered.header))));
  }
  if (covered.transport == 0) return;
  std::byte* checksum = &frame[layout.transport + (layout.tcp ? kTcpChecksum : kUdpChecksum)];
  store16(checksum, 0);
  const auto value = static_cast<std::uint16_t>(~transport_sum(frame, layout, covered.transport));
  store16(checksum, layout.udp && value == 0 ? 0xffff : value);
}

bool segment_header(std::span<std::byte> frame, const FrameLayout& layout, std::uint32_t index,
                    std::uint32_t offset, bool last) {
  if (!layout.tcp || layout.fragment || frame.size() < layout.payload) return false;
  const std::size_t length = frame.size() - layout.network - (layout.ipv4 ? 0 : kIpv6Bytes);
  if (length > 0xffff) return false;
  std::byte* ip = &frame[layout.network];
  store16(ip + (layout.ipv4 ? 2 : 4), static_cast<std::uint16_t>(length));
  if (layout.ipv4) store16(ip + 4, static_cast<std::uint16_t>(load16(ip + 4) + index));
  std::byte* tcp = &frame[layout.transport];
  store32(tcp + 4, load32(tcp + 4) + offset);
  unsigned flags = load8(tcp + 13);
  if (!last) flags &= ~unsigned{kFin | kPsh};
  if (index != 0) flags &= ~unsigned{kCwr};
  store8(tcp + 13, static_cast<std::uint8_t>(flags));
  return true;
}

}  // namespace uroce::wire
