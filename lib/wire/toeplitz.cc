#include "wire/toeplitz.h"

namespace uroce::wire {

std::uint32_t toeplitz(std::span<const std::uint8_t, 40> key, std::span<const std::byte> data) {
  std::uint32_t hash = 0;
  std::uint64_t window = 0;  // the 40 bits of the key from the first bit of a byte on
  std::size_t next = 0;
  const auto shift_in = [&] {
    window = (window << 8 | key[next]) & 0xffffffffff;
    next = next + 1 == key.size() ? 0 : next + 1;
  };
  for (int i = 0; i < 4; ++i) shift_in();
  for (const std::byte each : data) {
    shift_in();
    const auto byte = static_cast<unsigned>(each);
    for (unsigned bit = 0; bit < 8; ++bit) {
      const std::uint32_t taken = 0u - (byte >> (7 - bit) & 1u);
      hash ^= static_cast<std::uint32_t>(window >> (8 - bit)) & taken;
    }
  }
  return hash;
}

}  // namespace uroce::wire
