// Random values for attacks: by seed, with a preference for values at which checks go wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace uroce::hostile {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  std::uint64_t next() { return engine_(); }
  /// 0 to n - 1.
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(engine_() % n); }
  bool percent(std::uint32_t share) { return below(100) < share; }

  template <class T, std::size_t kCount>
  const T& of(const T (&all)[kCount]) {
    return all[below(kCount)];
  }
  template <class T>
  const T& of(const std::vector<T>& all) {
    return all[below(static_cast<std::uint32_t>(all.size()))];
  }

  /// Borders of types, pages and queues, small numbers, or anything.
  std::uint64_t wild() {
    constexpr std::uint64_t kBorders[] = {0,
                                          1,
                                          0x7f,
                                          0xff,
                                          0xffff,
                                          0x1'0000,
                                          0xff'ffff,
                                          0x7fff'ffff,
                                          0x8000'0000,
                                          0xffff'fffe,
                                          0xffff'ffff,
                                          0x1'0000'0000,
                                          4095,
                                          4096,
                                          4097,
                                          0x7fff'ffff'ffff'ffff,
                                          0x8000'0000'0000'0000,
                                          0xffff'ffff'ffff'f000,
                                          0xffff'ffff'ffff'ffff};
    switch (below(4)) {
      case 0: return of(kBorders);
      case 1: return below(32);
      case 2: return std::uint64_t{1} << below(64);
      default: return next();
    }
  }
  std::uint32_t wild32() { return static_cast<std::uint32_t>(wild()); }

  /// Overwrites some of the 32-bit words, at arbitrary places.
  void damage(std::span<std::byte> bytes) {
    for (std::uint32_t n = 1 + below(3); n != 0 && bytes.size() >= 4; --n) {
      const std::uint32_t value = wild32();
      const std::size_t at = percent(80) ? below(static_cast<std::uint32_t>(bytes.size() / 4)) * 4
                                         : below(static_cast<std::uint32_t>(bytes.size() - 3));
      for (std::size_t i = 0; i < 4; ++i) bytes[at + i] = static_cast<std::byte>(value >> 8 * i);
    }
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace uroce::hostile
