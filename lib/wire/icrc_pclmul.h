// Folding with PCLMULQDQ, 16 bytes at a time. The bulk of a message is left to a class that may use wider
// registers.
//
// Zeros before a message do not change its remainder while the state is zero. So the odd bytes form the first
// block, preceded by zeros, and every later block is full: there is no byte loop at the end.
//
// No byte of the source is used from two loads: it may change at any time, and the CRC is of the bytes written.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "wire/icrc_engines.h"

#define UROCE_PCLMUL __attribute__((target("sse4.2,pclmul")))

namespace uroce::wire::detail::pclmul {

inline constexpr FoldBy k128 = fold_by(128);
inline constexpr FoldBy kToEnd = {fold_constant(64 + 32), fold_constant(32)};

UROCE_PCLMUL inline __m128i constant(FoldBy k) {
  return _mm_set_epi64x(static_cast<long long>(k.high), static_cast<long long>(k.low));
}
UROCE_PCLMUL inline __m128i load(const std::byte* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
UROCE_PCLMUL inline void store(std::byte* to, __m128i value) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), value);
}
UROCE_PCLMUL inline __m128i fold(__m128i value, __m128i k) {
  return _mm_xor_si128(_mm_clmulepi64_si128(value, k, 0x00), _mm_clmulepi64_si128(value, k, 0x11));
}

/// Reduces 95 bits at the end of the message to the 32-bit state, by Barrett: bits 1 to 63 are divided, the rest is
/// the remainder.
UROCE_PCLMUL inline std::uint32_t reduce95(__m128i x) {
  const __m128i barrett =
      _mm_set_epi64x(static_cast<long long>(kWholePolynomial), static_cast<long long>(kBarrettQuotient));
  const __m128i quotient = _mm_clmulepi64_si128(x, barrett, 0x00);
  return static_cast<std::uint32_t>(
      _mm_extract_epi32(_mm_xor_si128(x, _mm_clmulepi64_si128(quotient, barrett, 0x10)), 2));
}
/// Reduces 128 bits to the 32-bit state.
UROCE_PCLMUL inline std::uint32_t reduce(__m128i x) { return reduce95(fold(x, constant(kToEnd))); }

/// pshufb control that moves the first r bytes of a block to its end and clears the rest: 16 bytes at kShift + r.
alignas(16) inline constexpr std::array<std::uint8_t, 32> kShift = [] {
  std::array<std::uint8_t, 32> shift{};
  for (std::uint8_t i = 0; i < 32; ++i) shift[i] = i < 16 ? 0x80 : static_cast<std::uint8_t>(i - 16);
  return shift;
}();

/// The first and the last bytes of 4 to 15, which overlap; `bytes` of them end a block, preceded by zeros. Of bytes
/// in both, those of the last count, which are also stored last.
template <class T>
struct Ends {
  T first, last;

  static Ends load(const std::byte* from, std::size_t bytes) {
    return {load_raw<T>(from), load_raw<T>(from + bytes - sizeof(T))};
  }
  void store(std::byte* to, std::size_t bytes) const {
    store_raw(to, first);
    store_raw(to + bytes - sizeof(T), last);
  }
};
UROCE_PCLMUL inline __m128i end_of_block(Ends<std::uint64_t> ends, std::size_t bytes) {
  const std::uint64_t low = bytes == 8 ? 0 : ends.first << (8 * (16 - bytes));
  return _mm_set_epi64x(static_cast<long long>(ends.last), static_cast<long long>(low));
}
UROCE_PCLMUL inline __m128i end_of_block(Ends<std::uint32_t> ends, std::size_t bytes) {
  const auto low = static_cast<std::uint32_t>(std::uint64_t{ends.first} << (8 * (8 - bytes)));
  return _mm_set_epi64x(static_cast<long long>(std::uint64_t{ends.last} << 32 | low), 0);
}

/// A pass that may copy and may set masked bits of the first 64 bytes. Bulk::run(pass, x, at, bytes) takes over if
/// at least Bulk::kBytes remain at `at`, a multiple of 16; x stands for the 16 bytes before.
template <bool kCopy, bool kMask, class Bulk>
struct Pass {
  std::byte* to;
  const std::byte* from;
  const std::byte* ones;

  UROCE_PCLMUL __m128i block(std::size_t at, bool masked = false) const {
    __m128i value = load(from + at);
    if (kMask && masked) value = _mm_or_si128(value, load(ones + at));
    if (kCopy) store(to + at, value);
    return value;
  }
  UROCE_PCLMUL __m128i step(__m128i x, std::size_t& at) const {
    at += 16;
    return _mm_xor_si128(fold(x, constant(k128)), block(at - 16));
  }

  template <class T>
  UROCE_PCLMUL __m128i short_block(std::size_t bytes) const {
    const auto ends = Ends<T>::load(from, bytes);
    if (kCopy) ends.store(to, bytes);
    const __m128i value = end_of_block(ends, bytes);
    return kMask ? _mm_or_si128(value, end_of_block(Ends<T>::load(ones, bytes), bytes)) : value;
  }
  // The first block, with `bytes` modulo 16 odd bytes of 4 to 15. Where a block is loaded whole, the next one loads
  // and stores its other bytes again.
  UROCE_PCLMUL __m128i odd_block(__m128i state, std::size_t bytes, std::size_t odd) const {
    const __m128i shift = load(reinterpret_cast<const std::byte*>(kShift.data()) + odd);
    if (bytes >= 16) return _mm_shuffle_epi8(_mm_xor_si128(block(0, true), state), shift);
    const __m128i value = bytes >= 8 ? short_block<std::uint64_t>(bytes) : short_block<std::uint32_t>(bytes);
    return _mm_xor_si128(value, _mm_shuffle_epi8(state, shift));
  }

  UROCE_PCLMUL std::uint32_t run(std::uint32_t state, std::size_t bytes) const {
    const std::size_t odd = bytes % 16;
    std::size_t at = 0;
    __m128i x;
    if (odd < 4) {
      for (; at < odd; ++at) {
        const std::byte next = kMask ? from[at] | ones[at] : from[at];
        if (kCopy) to[at] = next;
        state = byte_step(state, next);
      }
      if (at == bytes) return state;
      x = _mm_xor_si128(block(at, true), _mm_cvtsi32_si128(static_cast<int>(state)));
      at += 16;
    } else {
      x = odd_block(_mm_cvtsi32_si128(static_cast<int>(state)), bytes, odd);
      at = odd;
    }
    if (kMask) {
      for (; at < 64 && at < bytes; at += 16) x = _mm_xor_si128(fold(x, constant(k128)), block(at, true));
    }
    return finish(x, at, bytes);
  }

  /// The whole blocks from `at` on; x stands for the 16 bytes before.
  UROCE_PCLMUL std::uint32_t finish(__m128i x, std::size_t at, std::size_t bytes) const {
    if (bytes - at >= Bulk::kBytes) return Bulk::run(*this, x, at, bytes);
    while (at < bytes) x = step(x, at);
    return reduce(x);
  }
};

/// CrcEngine::copy_after. The word, XORed with the state, ends the block before the first one, which saves the
/// table lookup.
template <class Bulk>
UROCE_PCLMUL std::uint32_t copy_after(std::uint32_t state, std::uint32_t word, std::byte* to, const std::byte* from,
                                      std::size_t bytes) {
  const Pass<true, false, Bulk> pass{to, from, nullptr};
  if (bytes % 16 != 0 || bytes == 0) return pass.run(word_step(state, word), bytes);
  return pass.finish(_mm_slli_si128(_mm_cvtsi32_si128(static_cast<int>(state ^ word)), 12), 0, bytes);
}

/// The functions of an engine.
template <class Bulk>
UROCE_PCLMUL std::uint32_t update(std::uint32_t state, const std::byte* data, std::size_t bytes) {
  return Pass<false, false, Bulk>{nullptr, data, nullptr}.run(state, bytes);
}
template <class Bulk>
UROCE_PCLMUL std::uint32_t copy(std::uint32_t state, std::byte* to, const std::byte* from, std::size_t bytes) {
  return Pass<true, false, Bulk>{to, from, nullptr}.run(state, bytes);
}
template <class Bulk>
UROCE_PCLMUL std::uint32_t update_masked(std::uint32_t state, const std::byte* data, std::size_t bytes,
                                         const std::byte* ones) {
  return Pass<false, true, Bulk>{nullptr, data, ones}.run(state, bytes);
}

inline bool supported() { return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.2"); }

}  // namespace uroce::wire::detail::pclmul
#endif
