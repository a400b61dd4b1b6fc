// Folding by carry-less multiplication (x86-64: PCLMULQDQ, AArch64: PMULL), 16 bytes at a time. The bulk of a
// message is left to a class that may use wider registers.
//
// Zeros before a message do not change its remainder while the state is zero. So the odd bytes form the first
// block, preceded by zeros, and every later block is full: there is no byte loop at the end.
//
// No byte of the source is used from two loads: it may change at any time, and the CRC is of the bytes written.
#pragma once

#if defined(__x86_64__) || defined(__aarch64__)
#if defined(__x86_64__)
#include <immintrin.h>
#else
#include <arm_neon.h>
#endif

#include <array>
#include <cstddef>
#include <cstdint>

#include "wire/icrc_engines.h"

#if defined(__x86_64__)
#define UROCE_CLMUL __attribute__((target("sse4.2,pclmul")))
#else
#define UROCE_CLMUL
#endif

namespace uroce::wire::detail::clmul {

#if defined(__x86_64__)
using Vector = __m128i;
UROCE_CLMUL inline Vector load(const std::byte* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
UROCE_CLMUL inline void store(std::byte* to, Vector value) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), value);
}
UROCE_CLMUL inline Vector vector(std::uint64_t low, std::uint64_t high) {
  return _mm_set_epi64x(static_cast<long long>(high), static_cast<long long>(low));
}
UROCE_CLMUL inline std::uint32_t third_word(Vector value) {
  return static_cast<std::uint32_t>(_mm_extract_epi32(value, 2));
}
UROCE_CLMUL inline Vector exclusive_or(Vector a, Vector b) { return _mm_xor_si128(a, b); }
UROCE_CLMUL inline Vector either(Vector a, Vector b) { return _mm_or_si128(a, b); }
/// Byte i of the result is byte control[i], or zero where that is 0x80.
UROCE_CLMUL inline Vector shuffle(Vector value, Vector control) { return _mm_shuffle_epi8(value, control); }
UROCE_CLMUL inline Vector product_of_lows(Vector a, Vector b) { return _mm_clmulepi64_si128(a, b, 0x00); }
UROCE_CLMUL inline Vector product_of_highs(Vector a, Vector b) { return _mm_clmulepi64_si128(a, b, 0x11); }
#else
using Vector = uint8x16_t;
inline Vector load(const std::byte* from) { return vld1q_u8(reinterpret_cast<const std::uint8_t*>(from)); }
inline void store(std::byte* to, Vector value) { vst1q_u8(reinterpret_cast<std::uint8_t*>(to), value); }
inline Vector vector(std::uint64_t low, std::uint64_t high) {
  return vreinterpretq_u8_u64(vcombine_u64(vcreate_u64(low), vcreate_u64(high)));
}
inline std::uint32_t third_word(Vector value) { return vgetq_lane_u32(vreinterpretq_u32_u8(value), 2); }
inline Vector exclusive_or(Vector a, Vector b) { return veorq_u8(a, b); }
inline Vector either(Vector a, Vector b) { return vorrq_u8(a, b); }
inline Vector shuffle(Vector value, Vector control) { return vqtbl1q_u8(value, control); }
// Not the intrinsics: clang 14 declares them only where the whole file is compiled for CPUs that have PMULL.
inline Vector product_of_lows(Vector a, Vector b) {
  Vector product;
  asm(".arch_extension aes\n\tpmull %0.1q, %1.1d, %2.1d" : "=w"(product) : "w"(a), "w"(b));
  return product;
}
inline Vector product_of_highs(Vector a, Vector b) {
  Vector product;
  asm(".arch_extension aes\n\tpmull2 %0.1q, %1.2d, %2.2d" : "=w"(product) : "w"(a), "w"(b));
  return product;
}
#endif

inline constexpr FoldBy k128 = fold_by(128), k256 = fold_by(256), k384 = fold_by(384), k512 = fold_by(512);
inline constexpr FoldBy kToEnd = {fold_constant(64 + 32), fold_constant(32)};

UROCE_CLMUL inline Vector constant(FoldBy k) { return vector(k.low, k.high); }
UROCE_CLMUL inline Vector fold(Vector value, FoldBy by) {
  const Vector k = constant(by);
  return exclusive_or(product_of_lows(value, k), product_of_highs(value, k));
}

/// Reduces 95 bits at the end of the message to the 32-bit state, by Barrett: bits 1 to 63 are divided, the rest is
/// the remainder.
UROCE_CLMUL inline std::uint32_t reduce95(Vector x) {
  const Vector quotient = product_of_lows(x, vector(kBarrettQuotient, 0));
  return third_word(exclusive_or(x, product_of_lows(quotient, vector(kWholePolynomial, 0))));
}
/// Reduces 128 bits to the 32-bit state.
UROCE_CLMUL inline std::uint32_t reduce(Vector x) { return reduce95(fold(x, kToEnd)); }

/// shuffle() control that moves the first r bytes of a block to its end and clears the rest: 16 bytes at kShift +
/// r.
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
UROCE_CLMUL inline Vector end_of_block(Ends<std::uint64_t> ends, std::size_t bytes) {
  const std::uint64_t low = bytes == 8 ? 0 : ends.first << (8 * (16 - bytes));
  return vector(low, ends.last);
}
UROCE_CLMUL inline Vector end_of_block(Ends<std::uint32_t> ends, std::size_t bytes) {
  const auto low = static_cast<std::uint32_t>(std::uint64_t{ends.first} << (8 * (8 - bytes)));
  return vector(0, std::uint64_t{ends.last} << 32 | low);
}

/// A pass that may copy and may set masked bits of the first 64 bytes. Bulk::run(pass, x, at, bytes) takes over if
/// at least Bulk::kBytes remain at `at`, a multiple of 16; x stands for the 16 bytes before.
template <bool kCopy, bool kMask, class Bulk>
struct Pass {
  std::byte* to;
  const std::byte* from;
  const std::byte* ones;

  UROCE_CLMUL Vector block(std::size_t at, bool masked = false) const {
    Vector value = load(from + at);
    if (kMask && masked) value = either(value, load(ones + at));
    if (kCopy) store(to + at, value);
    return value;
  }
  UROCE_CLMUL Vector step(Vector x, std::size_t& at) const {
    at += 16;
    return exclusive_or(fold(x, k128), block(at - 16));
  }

  template <class T>
  UROCE_CLMUL Vector short_block(std::size_t bytes) const {
    const auto ends = Ends<T>::load(from, bytes);
    if (kCopy) ends.store(to, bytes);
    const Vector value = end_of_block(ends, bytes);
    return kMask ? either(value, end_of_block(Ends<T>::load(ones, bytes), bytes)) : value;
  }
  // The first block, with `bytes` modulo 16 odd bytes of 4 to 15. Where a block is loaded whole, the next one loads
  // and stores its other bytes again.
  UROCE_CLMUL Vector odd_block(Vector state, std::size_t bytes, std::size_t odd) const {
    const Vector shift = load(reinterpret_cast<const std::byte*>(kShift.data()) + odd);
    if (bytes >= 16) return shuffle(exclusive_or(block(0, true), state), shift);
    const Vector value = bytes >= 8 ? short_block<std::uint64_t>(bytes) : short_block<std::uint32_t>(bytes);
    return exclusive_or(value, shuffle(state, shift));
  }

  UROCE_CLMUL std::uint32_t run(std::uint32_t state, std::size_t bytes) const {
    const std::size_t odd = bytes % 16;
    std::size_t at = 0;
    Vector x;
    if (odd < 4) {
      for (; at < odd; ++at) {
        const std::byte next = kMask ? from[at] | ones[at] : from[at];
        if (kCopy) to[at] = next;
        state = byte_step(state, next);
      }
      if (at == bytes) return state;
      x = exclusive_or(block(at, true), vector(state, 0));
      at += 16;
    } else {
      x = odd_block(vector(state, 0), bytes, odd);
      at = odd;
    }
    if (kMask) {
      for (; at < 64 && at < bytes; at += 16) x = exclusive_or(fold(x, k128), block(at, true));
    }
    return finish(x, at, bytes);
  }

  /// The whole blocks from `at` on; x stands for the 16 bytes before.
  UROCE_CLMUL std::uint32_t finish(Vector x, std::size_t at, std::size_t bytes) const {
    if (bytes - at >= Bulk::kBytes) return Bulk::run(*this, x, at, bytes);
    while (at < bytes) x = step(x, at);
    return reduce(x);
  }
};

/// CrcEngine::copy_after. The word, XORed with the state, ends the block before the first one, which saves the
/// table lookup.
template <class Bulk>
UROCE_CLMUL std::uint32_t copy_after(std::uint32_t state, std::uint32_t word, std::byte* to, const std::byte* from,
                                     std::size_t bytes) {
  const Pass<true, false, Bulk> pass{to, from, nullptr};
  if (bytes % 16 != 0 || bytes == 0) return pass.run(word_step(state, word), bytes);
  return pass.finish(vector(0, std::uint64_t{state ^ word} << 32), 0, bytes);
}

/// The functions of an engine.
template <class Bulk>
UROCE_CLMUL std::uint32_t update(std::uint32_t state, const std::byte* data, std::size_t bytes) {
  return Pass<false, false, Bulk>{nullptr, data, nullptr}.run(state, bytes);
}
template <class Bulk>
UROCE_CLMUL std::uint32_t copy(std::uint32_t state, std::byte* to, const std::byte* from, std::size_t bytes) {
  return Pass<true, false, Bulk>{to, from, nullptr}.run(state, bytes);
}
template <class Bulk>
UROCE_CLMUL std::uint32_t update_masked(std::uint32_t state, const std::byte* data, std::size_t bytes,
                                        const std::byte* ones) {
  return Pass<false, true, Bulk>{nullptr, data, ones}.run(state, bytes);
}

/// Four chains; x begins the first.
struct FourChains {
  static constexpr std::size_t kBytes = 7 * 16;

  template <class P>
  UROCE_CLMUL static inline std::uint32_t run(P pass, Vector x, std::size_t at, std::size_t bytes) {
    Vector a = x, b = pass.block(at), c = pass.block(at + 16), d = pass.block(at + 32);
    for (at += 48; bytes - at >= 64; at += 64) {
      a = exclusive_or(fold(a, k512), pass.block(at));
      b = exclusive_or(fold(b, k512), pass.block(at + 16));
      c = exclusive_or(fold(c, k512), pass.block(at + 32));
      d = exclusive_or(fold(d, k512), pass.block(at + 48));
    }
    x = exclusive_or(exclusive_or(fold(a, k384), fold(b, k256)), exclusive_or(fold(c, k128), d));
    while (at < bytes) x = pass.step(x, at);
    return reduce(x);
  }
};

}  // namespace uroce::wire::detail::clmul
#endif
