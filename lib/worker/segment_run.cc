#include "worker/segment_run.h"

#include <algorithm>
#include <cstring>

#include "wire/network_headers.h"

namespace uroce::worker {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::size_t kMostDatagram = 65535;
constexpr std::size_t kIpv4Bytes = 20, kIpv6Bytes = 40, kTcpBytes = 20, kChecksum = 16;
constexpr unsigned kAck = 0x10, kPsh = 0x08;
constexpr std::uint16_t kDontFragment = 0x4000;

unsigned flags_of(Bytes frame, const wire::FrameLayout& layout) {
  return wire::load8(&frame[layout.transport + 13u]);
}
std::uint32_t sequence_of(Bytes frame, const wire::FrameLayout& layout) {
  return wire::load32(&frame[layout.transport + 4u]);
}
/// The end of the datagram; a short frame has padding after it.
std::size_t end_of(Bytes frame, const wire::FrameLayout& layout) {
  const std::byte* const ip = &frame[layout.network];
  return layout.network + (layout.ipv4 ? wire::load16(ip + 2) : kIpv6Bytes + wire::load16(ip + 4));
}
iovec part_of(const void* bytes, std::size_t count) { return {const_cast<void*>(bytes), count}; }

}  // namespace

bool SegmentRun::joinable(Bytes frame, const wire::FrameLayout& layout) {
  const std::size_t ip = layout.ipv4 ? kIpv4Bytes : kIpv6Bytes;
  if (!layout.tcp || layout.fragment || layout.vlan || layout.transport != layout.network + ip) return false;
  if ((flags_of(frame, layout) | kPsh) != (kAck | kPsh)) return false;
  // Others have identifications, which would be lost.
  if (layout.ipv4 && wire::load16(&frame[layout.network + 6u]) != kDontFragment) return false;
  return end_of(frame, layout) <= frame.size() && end_of(frame, layout) > layout.payload &&
         wire::checksums_good(frame, layout);
}

bool SegmentRun::continues(Bytes frame, const wire::FrameLayout& layout) const {
  if (layout.ipv4 != layout_.ipv4 || layout.payload != layout_.payload) return false;
  const std::byte *const a = first_.data(), *const b = frame.data();
  const auto same = [a, b](std::size_t from, std::size_t to) {
    return std::memcmp(a + from, b + from, to - from) == 0;
  };
  const std::size_t ip = layout.network, tcp = layout.transport;
  // All but length, identification and checksum.
  const bool same_ip = layout.ipv4 ? same(0, ip + 2) && same(ip + 6, ip + 10) && same(ip + 12, tcp)
                                   : same(0, ip + 4) && same(ip + 6, tcp);
  // Ports; acknowledge and length of the header; window; options.
  if (!same_ip || !same(tcp, tcp + 4) || !same(tcp + 8, tcp + 13) || !same(tcp + 14, tcp + 16) ||
      !same(tcp + kTcpBytes, layout.payload))
    return false;
  const std::size_t bytes = end_of(frame, layout) - layout.payload;
  return sequence_of(frame, layout) == sequence_of(first_, layout_) + static_cast<std::uint32_t>(payload_) &&
         bytes <= segment_ && layout.payload - ip + payload_ + bytes <= kMostDatagram;
}

bool SegmentRun::add(Bytes frame) {
  if (frames_ != 0 && (!open_ || frames_ == kMostFrames)) return false;
  const wire::FrameLayout layout = wire::layout_of(frame);
  const bool joins = joinable(frame, layout);
  if (frames_ == 0) {
    first_ = frame;
    layout_ = layout;
    open_ = joins;
    segment_ = payload_ = 0;
    if (joins) segment_ = end_of(frame, layout) - layout.payload;
  } else if (!joins || !continues(frame, layout)) {
    return false;
  }
  ++frames_;
  if (!joins) return true;
  const std::size_t bytes = end_of(frame, layout) - layout.payload;
  parts_[1 + frames_] = part_of(&frame[layout.payload], bytes);
  payload_ += bytes;
  flags_ = static_cast<std::uint8_t>(flags_of(frame, layout));
  open_ = bytes == segment_ && (flags_ & kPsh) == 0;
  return true;
}

/// Headers of the whole, with the sum of the pseudo header as checksum: the kernel completes it if it sends the
/// frame on.
void SegmentRun::make_headers() {
  std::memcpy(headers_.data(), first_.data(), layout_.payload);
  std::byte *const ip = &headers_[layout_.network], *const tcp = &headers_[layout_.transport];
  const std::size_t length = layout_.payload - layout_.transport + payload_;
  if (layout_.ipv4) {
    wire::store16(ip + 2, static_cast<unsigned>(kIpv4Bytes + length));
    wire::store16(ip + 10, 0);
    wire::store16(ip + 10, wire::internet_checksum({ip, kIpv4Bytes}));
  } else {
    wire::store16(ip + 4, static_cast<unsigned>(length));
  }
  const Bytes addresses = layout_.ipv4 ? Bytes(ip + 12, 8) : Bytes(ip + 8, 32);
  const auto pseudo = static_cast<std::uint32_t>(wire::kProtocolTcp + length);
  wire::store16(tcp + kChecksum, wire::ones_complement_sum(addresses, pseudo));
  wire::store8(tcp + 13, flags_);
  header_ = {.flags = VirtioNetHeader::kNeedsChecksum,
             .segments = layout_.ipv4 ? VirtioNetHeader::kTcp4 : VirtioNetHeader::kTcp6,
             .header_bytes = layout_.payload,
             .segment_bytes = static_cast<std::uint16_t>(segment_),
             .checksum_start = layout_.transport,
             .checksum_offset = kChecksum};
}

std::span<const iovec> SegmentRun::parts() {
  parts_[0] = part_of(&header_, sizeof(header_));
  if (frames_ == 1) {
    header_ = {};
    parts_[1] = part_of(first_.data(), first_.size());
    return std::span(parts_).first(2);
  }
  make_headers();
  parts_[1] = part_of(headers_.data(), layout_.payload);
  return std::span(parts_).first(2 + frames_);
}

}  // namespace uroce::worker
