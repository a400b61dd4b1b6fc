// LinkStack fed with hostile frames. The input is a list of frames, each behind two bytes of length (big-endian);
// time goes on between them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "net/bytes.h"
#include "net/link_stack.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace uroce;
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
    // A block of exactly this size: a read beyond it shows.
    const auto frame = std::make_unique<std::byte[]>(length);
    std::memcpy(frame.get(), data, length);
    stack.resolve(peer4, now, mac);
    stack.resolve(peer6, now, mac);
    stack.receive({frame.get(), length}, now);
    data += length;
    size -= length;
    now += 300 * kMillisecond;
    stack.advance(now);
    while (const std::size_t sent = stack.next_frame(out)) {
      if (sent < net::kMinFrameBytes || net::get_mac(out.data() + 6) != config.mac) std::abort();
    }
    if (stack.neighbours() > config.max_neighbours) std::abort();
    if (stack.resolve(own4, now, mac) != net::Resolution::kResolved || mac != config.mac) std::abort();
  }
  return 0;
}
