// Random numbers that cannot be predicted from those already seen, as long as the seed is secret: the ChaCha20
// stream (RFC 8439). The seed comes from the caller, so that a run can be repeated.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace uroce::base {

class ChaCha20 {
 public:
  using Key = std::array<std::uint32_t, 8>;
  using Block = std::array<std::uint32_t, 16>;

  explicit ChaCha20(std::uint64_t seed)
      : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)} {}

  /// The next 64 bits.
  std::uint64_t operator()() {
    if (used_ == block_.size()) {
      block_ = block(key_, counter_, {});
      used_ = 0;
      // 2^38 bytes are more than the keys of any run.
      ++counter_;
    }
    const std::uint64_t low = block_[used_], high = block_[used_ + 1];
    used_ += 2;
    return high << 32 | low;
  }

  /// RFC 8439, section 2.3.
  static Block block(const Key& key, std::uint32_t counter, const std::array<std::uint32_t, 3>& nonce) {
    Block state{0x61707865, 0x3320646e, 0x79622d32, 0x6b206574, key[0],  key[1],   key[2],   key[3],
                key[4],     key[5],     key[6],     key[7],     counter, nonce[0], nonce[1], nonce[2]};
    const Block first = state;
    for (int i = 0; i < 10; ++i) {
      for (std::size_t column = 0; column < 4; ++column) {
        quarter_round(state, column, column + 4, column + 8, column + 12);
      }
      for (std::size_t d = 0; d < 4; ++d) {
        quarter_round(state, d, 4 + (d + 1) % 4, 8 + (d + 2) % 4, 12 + (d + 3) % 4);
      }
    }
    for (std::size_t i = 0; i < state.size(); ++i) state[i] += first[i];
    return state;
  }

 private:
  static void quarter_round(Block& s, std::size_t a, std::size_t b, std::size_t c, std::size_t d) {
    s[a] += s[b], s[d] = std::rotl(s[d] ^ s[a], 16);
    s[c] += s[d], s[b] = std::rotl(s[b] ^ s[c], 12);
    s[a] += s[b], s[d] = std::rotl(s[d] ^ s[a], 8);
    s[c] += s[d], s[b] = std::rotl(s[b] ^ s[c], 7);
  }

  Key key_;
  std::uint32_t counter_ = 0;
  Block block_{};
  std::size_t used_ = 16;
};

}  // namespace uroce::base
