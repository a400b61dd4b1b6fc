// A field of a big-endian message.
#pragma once

#include <cstddef>
#include <cstdint>

namespace uroce::cm {

/// `bits` bits from bit `shift` (0: lowest) of the big-endian word of `word_bytes` bytes at `offset`.
struct Field {
  std::size_t offset;
  std::size_t word_bytes;
  unsigned shift = 0;
  unsigned bits = static_cast<unsigned>(8 * word_bytes);

  constexpr std::uint64_t mask() const { return bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1; }

  template <class T>
  constexpr T read(const std::byte* message) const {
    return static_cast<T>((word(message) >> shift) & mask());
  }

  /// Leaves the other bits of the word unchanged; excess bits of the value are dropped.
  constexpr void write(std::byte* message, std::uint64_t value) const {
    const std::uint64_t all = (word(message) & ~(mask() << shift)) | ((value & mask()) << shift);
    for (std::size_t i = 0; i < word_bytes; ++i) {
      message[offset + i] = static_cast<std::byte>(all >> (8 * (word_bytes - 1 - i)));
    }
  }

 private:
  constexpr std::uint64_t word(const std::byte* message) const {
    std::uint64_t all = 0;
    for (std::size_t i = 0; i < word_bytes; ++i) all = all << 8 | static_cast<std::uint8_t>(message[offset + i]);
    return all;
  }
};

}  // namespace uroce::cm
