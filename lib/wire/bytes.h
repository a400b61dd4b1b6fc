// Big-endian and little-endian fields at any alignment.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace uroce::wire {

static_assert(std::endian::native == std::endian::little, "the host's byte order is assumed to be little-endian");

template <class T>
inline T load_raw(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class T>
inline void store_raw(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

constexpr std::uint16_t swap_bytes(std::uint16_t v) { return __builtin_bswap16(v); }
constexpr std::uint32_t swap_bytes(std::uint32_t v) { return __builtin_bswap32(v); }
constexpr std::uint64_t swap_bytes(std::uint64_t v) { return __builtin_bswap64(v); }

/// Big-endian integers.
inline std::uint8_t load8(const std::byte* from) { return static_cast<std::uint8_t>(*from); }
inline std::uint16_t load16(const std::byte* from) { return swap_bytes(load_raw<std::uint16_t>(from)); }
inline std::uint32_t load32(const std::byte* from) { return swap_bytes(load_raw<std::uint32_t>(from)); }
inline std::uint64_t load64(const std::byte* from) { return swap_bytes(load_raw<std::uint64_t>(from)); }
inline void store8(std::byte* to, std::uint8_t value) { *to = static_cast<std::byte>(value); }
inline void store16(std::byte* to, std::uint16_t value) { store_raw(to, swap_bytes(value)); }
inline void store32(std::byte* to, std::uint32_t value) { store_raw(to, swap_bytes(value)); }
inline void store64(std::byte* to, std::uint64_t value) { store_raw(to, swap_bytes(value)); }

}  // namespace uroce::wire
