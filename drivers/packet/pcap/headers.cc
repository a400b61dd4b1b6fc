#include "drivers/packet/pcap/headers.h"

#include "wire/bytes.h"
#include "wire/ethernet_frame.h"
#include "wire/network_headers.h"

namespace uroce::pcap {

std::optional<Headers> headers_of(std::span<const std::byte> frame) {
  const wire::FrameLayout layout = wire::layout_of(frame);
  if (!layout.ipv4 && !layout.ipv6) return std::nullopt;
  const std::byte* const ip = frame.data() + layout.network;
  Headers headers;
  headers.source = layout.ipv4 ? wire::load_ipv4(ip + 12) : wire::load_ipv6(ip + 8);
  headers.destination = layout.ipv4 ? wire::load_ipv4(ip + 16) : wire::load_ipv6(ip + 24);
  if (!layout.udp || layout.payload + wire::kBthBytes > frame.size()) return headers;
  if (wire::load16(frame.data() + layout.transport + 2) != wire::kRoceUdpPort) return headers;
  headers.bth = wire::Bth::parse(frame.data() + layout.payload);
  headers.after_bth = frame.subspan(layout.payload + wire::kBthBytes);
  return headers;
}

}  // namespace uroce::pcap
