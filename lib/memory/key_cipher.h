// A keyed permutation of 24-bit numbers: four Feistel rounds over 12-bit halves. It hides which slot a key names;
// it has to resist guessing only, since a failed guess moves the guesser's QP to the error state.
#pragma once

#include <array>
#include <cstdint>

namespace uroce::memory {

class KeyCipher {
 public:
  /// `random`: draws 64 bits.
  template <class Random>
  explicit KeyCipher(Random& random) {
    for (Round& round : rounds_) {
      round.add = static_cast<std::uint32_t>(random());
      round.multiply = static_cast<std::uint32_t>(random()) | 1;
    }
  }

  std::uint32_t encrypt(std::uint32_t value) const {
    std::uint32_t left = value >> 12 & 0xfff, right = value & 0xfff;
    for (int i = 0; i < 4; i += 2) {
      left ^= mix(right, rounds_[i]);
      right ^= mix(left, rounds_[i + 1]);
    }
    return left << 12 | right;
  }

  std::uint32_t decrypt(std::uint32_t value) const {
    std::uint32_t left = value >> 12 & 0xfff, right = value & 0xfff;
    for (int i = 2; i >= 0; i -= 2) {
      right ^= mix(left, rounds_[i + 1]);
      left ^= mix(right, rounds_[i]);
    }
    return left << 12 | right;
  }

 private:
  struct Round {
    std::uint32_t add, multiply;
  };
  static std::uint32_t mix(std::uint32_t half, const Round& round) {
    return (half + round.add) * round.multiply >> 20;  // the high bits depend on all lower ones
  }

  std::array<Round, 4> rounds_{};
};

}  // namespace uroce::memory
