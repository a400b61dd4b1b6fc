#include "worker/kernel_frame.h"

#include <algorithm>
#include <cstring>

#include "wire/network_headers.h"

namespace uroce::worker {
namespace {

static_assert(KernelFrame::kHeader == 10);

/// Completes a checksum: the field holds the sum of the pseudo header. False: it is outside the frame.
bool complete_checksum(std::span<std::byte> frame, const VirtioNetHeader& header) {
  const std::size_t start = header.checksum_start, field = start + header.checksum_offset;
  if (start > frame.size() || field + 2 > frame.size()) return false;
  const wire::FrameLayout layout = wire::layout_of(frame);
  if ((layout.tcp || layout.udp) && !layout.fragment && layout.transport == start) {
    wire::fill_checksums(frame, layout);  // faster
    return true;
  }
  const std::uint16_t value = wire::internet_checksum(frame.subspan(start));
  wire::store16(&frame[field], value != 0 ? value : 0xffff);  // 0 in UDP: no checksum
  return true;
}

}  // namespace

bool KernelFrame::assign(std::span<std::byte> read) {
  next_ = count_ = 0;
  if (read.size() < kHeader + wire::EthernetHeader::kBytes) return false;
  VirtioNetHeader header;
  std::memcpy(&header, read.data(), sizeof(header));
  frame_ = read.subspan(kHeader);
  const unsigned kind = header.segments & ~unsigned{VirtioNetHeader::kEcn};
  if (kind == VirtioNetHeader::kNone) {
    if ((header.flags & VirtioNetHeader::kNeedsChecksum) != 0 && !complete_checksum(frame_, header)) return false;
    segment_ = 0;
    count_ = 1;
    return true;
  }
  if (kind != VirtioNetHeader::kTcp4 && kind != VirtioNetHeader::kTcp6) return false;
  layout_ = wire::layout_of_headers(frame_);
  headers_ = layout_.payload;
  segment_ = header.segment_bytes;
  if (!layout_.tcp || layout_.fragment || segment_ == 0 || headers_ >= frame_.size()) return false;
  count_ = static_cast<std::uint32_t>((frame_.size() - headers_ + segment_ - 1) / segment_);
  return true;
}

std::size_t KernelFrame::next_bytes() const {
  if (segment_ == 0) return frame_.size();
  return headers_ + std::min(segment_, frame_.size() - headers_ - next_ * segment_);
}

void KernelFrame::take(std::span<std::byte> to) {
  if (segment_ == 0) {
    std::memcpy(to.data(), frame_.data(), to.size());
  } else {
    const std::size_t offset = next_ * segment_;
    std::memcpy(to.data(), frame_.data(), headers_);
    std::memcpy(&to[headers_], &frame_[headers_ + offset], to.size() - headers_);
    wire::segment_header(to, layout_, next_, static_cast<std::uint32_t>(offset), next_ + 1 == count_);
    wire::fill_checksums(to, layout_);
  }
  ++next_;
}

}  // namespace uroce::worker
