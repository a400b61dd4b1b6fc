// Slicing by 8 (Kounavis and Berry, 2005): any 64-bit little-endian CPU.
#include <algorithm>

#include "wire/icrc_engines.h"

namespace uroce::wire::detail {
namespace {

std::uint32_t eight(std::uint32_t state, std::uint64_t data) {
  data ^= state;
  return kSlices[7][data & 0xff] ^ kSlices[6][data >> 8 & 0xff] ^ kSlices[5][data >> 16 & 0xff] ^
         kSlices[4][data >> 24 & 0xff] ^ kSlices[3][data >> 32 & 0xff] ^ kSlices[2][data >> 40 & 0xff] ^
         kSlices[1][data >> 48 & 0xff] ^ kSlices[0][data >> 56];
}

std::uint32_t update(std::uint32_t state, const std::byte* data, std::size_t bytes) {
  for (; bytes >= 8; bytes -= 8, data += 8) state = eight(state, load_raw<std::uint64_t>(data));
  for (; bytes != 0; --bytes, ++data) state = byte_step(state, *data);
  return state;
}

std::uint32_t copy(std::uint32_t state, std::byte* to, const std::byte* from, std::size_t bytes) {
  for (; bytes >= 8; bytes -= 8, from += 8, to += 8) {
    const auto data = load_raw<std::uint64_t>(from);
    store_raw(to, data);
    state = eight(state, data);
  }
  for (; bytes != 0; --bytes) {
    const std::byte data = *from++;
    *to++ = data;
    state = byte_step(state, data);
  }
  return state;
}

std::uint32_t update_masked(std::uint32_t state, const std::byte* data, std::size_t bytes, const std::byte* ones) {
  std::size_t masked = std::min<std::size_t>(bytes, 64);
  bytes -= masked;
  for (; masked >= 8; masked -= 8, data += 8, ones += 8) {
    state = eight(state, load_raw<std::uint64_t>(data) | load_raw<std::uint64_t>(ones));
  }
  for (; masked != 0; --masked) state = byte_step(state, *data++ | *ones++);
  return update(state, data, bytes);
}

}  // namespace

constinit const CrcEngine kPortableEngine = {"portable", [] { return true; }, update,
                                             copy,       update_masked,       copy_after<copy>};

}  // namespace uroce::wire::detail
