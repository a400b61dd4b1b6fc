// Small seeded generator (SplitMix64): the same numbers on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace uroce::sim {

class Random {
 public:
  /// Neighbouring seeds give unrelated numbers.
  explicit Random(std::uint64_t seed) : state_(seed) { state_ = next() ^ 0x6a09e667f3bcc908; }

  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  /// In [0, bound); 0 when bound is 0.
  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>((next() >> 32) * bound >> 32); }
  /// In [low, high].
  std::uint32_t between(std::uint32_t low, std::uint32_t high) { return low + below(high - low + 1); }
  bool chance(double probability) { return static_cast<double>(next() >> 11) * 0x1p-53 < probability; }
  void fill(std::byte* to, std::size_t bytes) {
    for (; bytes >= 8; bytes -= 8, to += 8) {
      const std::uint64_t word = next();
      std::memcpy(to, &word, 8);
    }
    const std::uint64_t word = next();
    if (bytes != 0) std::memcpy(to, &word, bytes);
  }
  template <class T, std::size_t N>
  const T& pick(const T (&options)[N]) {
    return options[below(N)];
  }

 private:
  std::uint64_t state_;
};

}  // namespace uroce::sim
