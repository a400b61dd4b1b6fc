#include "worker/raw_dispatch.h"

#include <array>
#include <cstring>

#include "wire/network_headers.h"

namespace uroce::worker {

RawDispatch::RawDispatch(proto::Transport& transport, const wire::Mac& mac, std::uint32_t frame_bytes)
    : transport_(transport),
      mac_(mac),
      frame_bytes_(frame_bytes),
      as_sent_(std::make_unique_for_overwrite<std::byte[]>(frame_bytes)) {}

net::RxFilter RawDispatch::rx_filter() const {
  if (flows_.wants_foreign(mac_)) return net::RxFilter::kPromiscuous;
  return flows_.empty() ? net::RxFilter::kRoceOnly : net::RxFilter::kAllForPort;
}

void RawDispatch::dispatch(std::span<const std::byte> frame, std::uint32_t sender, Nanos now) {
  const wire::FrameLayout layout = wire::layout_of(frame);
  std::array<net::FlowTarget, net::FlowTable::kMaxCopies> targets;
  const std::size_t count = flows_.classify(frame, net::key_of(frame, layout), targets);
  deliver_to_targets({.bytes = frame, .sender = sender}, layout, std::span(targets).first(count), now);
}

void RawDispatch::sniff(std::span<const std::byte> frame, Nanos now) {
  std::array<net::FlowTarget, net::FlowTable::kMaxCopies> targets;
  const std::size_t count = flows_.sniffers(frame, targets);
  deliver_to_targets({.bytes = frame}, wire::layout_of(frame), std::span(targets).first(count), now);
}

std::span<const std::byte> RawDispatch::as_sent(const base::Frame& frame) {
  if ((frame.flags & base::kIpChecksumNeeded) == 0) return frame.bytes();
  if (frame.length > frame_bytes_) return {};
  const std::span copy(as_sent_.get(), frame.length);
  std::memcpy(copy.data(), frame.data, frame.length);
  if (const wire::FrameLayout layout = wire::layout_of(copy); layout.ipv4) {
    std::byte* const ip = &copy[layout.network];
    wire::store16(ip + 10, wire::Ipv4Header::parse(ip).right_checksum());
  }
  return copy;
}

void RawDispatch::deliver_to_targets(proto::ReceivedFrame received, const wire::FrameLayout& layout,
                                     std::span<const net::FlowTarget> targets, Nanos now) {
  if (targets.empty()) return;
  received.vlan = layout.vlan;
  received.vlan_tci = layout.vlan_tci;
  received.checksums_good = wire::checksums_good(received.bytes, layout);
  for (const net::FlowTarget& target : targets) {
    received.flow_tag = target.tag;
    transport_.receive_frame({target.qp}, received, now);
  }
}

}  // namespace uroce::worker
