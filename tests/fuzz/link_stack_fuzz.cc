// Hostile frames for LinkStack and for the handling of raw packets: layers, flows, checksums, segments. The input
// is a list of frames, each preceded by its length in two bytes (big-endian). Time passes between them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "net/flow_table.h"
#include "net/link_stack.h"
#include "wire/ethernet_frame.h"
#include "wire/network_headers.h"

namespace {

using namespace uroce;

void demand(bool holds) {
  if (!holds) std::abort();
}

wire::FrameLayout checked_layout(std::span<const std::byte> frame) {
  const wire::FrameLayout layout = wire::layout_of(frame);
  demand(!(layout.ipv4 && layout.ipv6) && !(layout.tcp && layout.udp));
  demand((layout.network != 0) == (layout.ipv4 || layout.ipv6));
  demand((layout.transport != 0) == (layout.tcp || layout.udp) && (layout.payload != 0) == (layout.transport != 0));
  demand(layout.transport == 0 ||
         (layout.network + 20 <= layout.transport && layout.transport + 8 <= layout.payload));
  demand(layout.payload <= frame.size() && layout.network <= frame.size());
  return layout;
}

/// Each frame has a flow that matches exactly its key without trapping it, and one RSS for all.
void classify(net::FlowTable& table, std::span<const std::byte> frame, const wire::FrameLayout& layout) {
  net::Flow own;
  own.qp = 1;
  own.dont_trap = true;
  own.value = net::key_of(frame, layout);
  std::memset(&own.mask, 0xff, sizeof own.mask);
  demand(table.add(2, own));
  net::FlowTarget to[3];
  demand(table.classify(frame, own.value, to) == 2 && to[0].qp == 1 && to[1].qp >= 10 && to[1].qp < 14);
  demand(table.sniffers(frame, to) == 1 && to[0].qp >= 10 && to[0].qp < 14);
  table.wants_foreign({2, 0, 0, 0, 0, 1});
  table.remove(2);
}

net::FlowTable default_flows() {
  auto rss = std::make_shared<net::RssTarget>();
  rss->qps = {10, 11, 12, 13};
  rss->fields = 0xff;
  rss->key.fill(0x6d);
  net::Flow all;
  all.type = net::FlowType::kAllDefault;
  all.rss = rss;
  net::FlowTable table;
  demand(table.add(0, all));
  all.type = net::FlowType::kSniffer;
  demand(table.add(1, all));
  return table;
}

/// Treats the frame as sent by a raw packet QP: fills in checksums, then takes it as the first of several segments.
void send_raw(std::span<std::byte> frame) {
  const wire::FrameLayout layout = checked_layout(frame);
  wire::checksums_good(frame, layout);
  wire::fill_checksums(frame, layout);
  demand(!wire::checksums_good(frame, layout) || (layout.transport != 0 && !layout.fragment));
  const wire::FrameLayout headers = wire::layout_of_headers(frame);
  if (!wire::segment_header(frame, headers, 1, 1000, false)) return;
  wire::fill_checksums(frame, headers);
  const wire::FrameLayout segment = checked_layout(frame);
  demand(segment.tcp && segment.payload == headers.payload && wire::checksums_good(frame, segment));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  net::FlowTable flows = default_flows();
  net::LinkConfig config;
  config.mac = {0x02, 0, 0, 0, 0, 1};
  config.max_neighbours = 4;
  wire::Address own4, own6, peer4, peer6;
  own4.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1};
  own6.bytes = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  peer4 = own4;
  peer4.bytes[15] = 2;
  peer6 = own6;
  peer6.bytes[15] = 2;
  config.addresses = {{own4, 24}, {own6, 64}};
  net::LinkStack stack(config);
  Nanos now = 0;
  std::vector<std::byte> out(2048);
  wire::Mac mac;
  while (size >= 2) {
    const std::size_t length = std::min<std::size_t>(std::size_t{data[0]} << 8 | data[1], size - 2);
    data += 2;
    size -= 2;
    // A block of exactly this size, so that a sanitizer detects a read beyond it.
    const auto frame = std::make_unique<std::byte[]>(length);
    std::memcpy(frame.get(), data, length);
    stack.resolve(peer4, now, mac);
    stack.resolve(peer6, now, mac);
    stack.receive({frame.get(), length}, now);
    classify(flows, {frame.get(), length}, checked_layout({frame.get(), length}));
    send_raw({frame.get(), length});
    data += length;
    size -= length;
    now += 300 * kMillisecond;
    stack.advance(now);
    while (const std::size_t sent = stack.next_frame(out)) {
      if (sent < wire::kMinFrameBytes || wire::load_mac(out.data() + 6) != config.mac) std::abort();
    }
    if (stack.neighbours() > config.max_neighbours) std::abort();
    if (stack.resolve(own4, now, mac) != net::Resolution::kResolved || mac != config.mac) std::abort();
  }
  return 0;
}
