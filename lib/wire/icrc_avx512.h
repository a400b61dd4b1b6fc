// Folding with VPCLMULQDQ on 512-bit registers, in four chains; the odd bytes go first, as in icrc_clmul.h, here
// with masked loads and stores.
#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
// gcc 12 takes the undefined operands of its own intrinsics for uninitialised variables (bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include <bit>
#include <utility>

#include "wire/icrc_engines.h"

#define UROCE_AVX512_TARGETS "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,pclmul,vpclmulqdq,bmi2"
#define UROCE_AVX512 __attribute__((target(UROCE_AVX512_TARGETS)))

namespace uroce::wire::detail::avx512 {

inline constexpr FoldBy k512 = fold_by(512), k2048 = fold_by(2048);

UROCE_AVX512 inline __m512i constant(FoldBy k) {
  return _mm512_set4_epi64(static_cast<long long>(k.high), static_cast<long long>(k.low),
                           static_cast<long long>(k.high), static_cast<long long>(k.low));
}
UROCE_AVX512 inline __m512i load(const std::byte* from) { return _mm512_loadu_si512(from); }
UROCE_AVX512 inline __m512i xor3(__m512i a, __m512i b, __m512i c) {
  return _mm512_ternarylogic_epi64(a, b, c, 0x96);
}
/// `value` moved by `k`, plus `more`.
UROCE_AVX512 inline __m512i fold(__m512i value, __m512i k, __m512i more) {
  return xor3(_mm512_clmulepi64_epi128(value, k, 0x00), _mm512_clmulepi64_epi128(value, k, 0x11), more);
}

/// Factors of the eight halves of a block's lanes that move it to the end of the message, past the `blocks` blocks
/// that follow it. The products have 95 bits each.
struct alignas(64) ToEnd {
  std::array<std::uint64_t, 8> half;
};
constexpr ToEnd to_end(unsigned blocks) {
  ToEnd k{};
  for (unsigned i = 0; i < 8; ++i) k.half[i] = fold_constant(512 * blocks + 64 * (7 - i) + 32);
  return k;
}
template <unsigned kBlocks>
inline constexpr ToEnd kToEnd = to_end(kBlocks);

/// `value`, which kBlocks blocks follow, moved to the end, plus `more`. The lanes are not added up yet.
template <unsigned kBlocks>
UROCE_AVX512 inline __m512i moved(__m512i value, __m512i more) {
  return fold(value, _mm512_load_si512(kToEnd<kBlocks>.half.data()), more);
}
template <unsigned kBlocks>
UROCE_AVX512 inline __m512i moved(__m512i value) {
  const __m512i k = _mm512_load_si512(kToEnd<kBlocks>.half.data());
  return _mm512_xor_si512(_mm512_clmulepi64_epi128(value, k, 0x00), _mm512_clmulepi64_epi128(value, k, 0x11));
}

/// The 32-bit state from lanes of 95 bits, by Barrett: bits 1 to 63 of their sum are divided, the rest is the
/// remainder.
UROCE_AVX512 inline std::uint32_t reduce(__m512i lanes) {
  const __m256i half = _mm256_xor_si256(_mm512_castsi512_si256(lanes), _mm512_extracti64x4_epi64(lanes, 1));
  const __m128i x = _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  const __m128i k =
      _mm_set_epi64x(static_cast<long long>(kWholePolynomial), static_cast<long long>(kBarrettQuotient));
  const __m128i quotient = _mm_clmulepi64_si128(x, k, 0x00);
  return static_cast<std::uint32_t>(
      _mm_extract_epi32(_mm_xor_si128(x, _mm_clmulepi64_si128(quotient, k, 0x10)), 2));
}

// Masked lanes are not accessed, so an access may begin `pad` bytes before its array; but if those bytes lie in a
// page that is not mapped, the CPU takes 150 ns to suppress the fault. At the start of a page the bytes are shifted
// in the register instead.
inline bool starts_page(const std::byte* at, std::size_t pad) {
  return (reinterpret_cast<std::uintptr_t>(at) & 4095) < pad;
}
/// Byte i of the result is byte i + by of `value`, modulo 64.
UROCE_AVX512 inline __m512i shifted(__m512i value, std::size_t by) {
  alignas(64) static constexpr auto kNumbers = [] {
    std::array<std::uint8_t, 64> numbers{};
    for (std::uint8_t i = 0; i < 64; ++i) numbers[i] = i;
    return numbers;
  }();
  return _mm512_permutexvar_epi8(
      _mm512_add_epi8(_mm512_load_si512(kNumbers.data()), _mm512_set1_epi8(static_cast<char>(by))), value);
}
/// 64 - pad bytes, preceded by pad zeros; pad is 1 to 60. The address is computed as an integer because it lies
/// before the array.
UROCE_AVX512 inline __m512i load_tail(const std::byte* from, std::size_t pad) {
  if (starts_page(from, pad)) return shifted(_mm512_maskz_loadu_epi8(~__mmask64{0} >> pad, from), 64 - pad);
  return _mm512_maskz_loadu_epi8(~__mmask64{0} << pad,
                                 reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(from) - pad));
}
UROCE_AVX512 inline void store_tail(std::byte* to, __m512i value, std::size_t pad) {
  if (starts_page(to, pad)) return _mm512_mask_storeu_epi8(to, ~__mmask64{0} >> pad, shifted(value, pad));
  _mm512_mask_storeu_epi8(reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(to) - pad), ~__mmask64{0} << pad,
                          value);
}

/// Bulk::run(pass, x, at, bytes) takes over if at least Bulk::kBlocks blocks remain at `at`; x stands for the 64
/// bytes before.
template <bool kCopy, bool kMask, class Bulk>
struct Pass {
  std::byte* to;
  const std::byte* from;
  const std::byte* ones;

  [[gnu::always_inline]] UROCE_AVX512 inline __m512i block(std::size_t at) const {
    const __m512i value = load(from + at);
    if (kCopy) _mm512_storeu_si512(to + at, value);
    return value;
  }
  [[gnu::always_inline]] UROCE_AVX512 inline __m512i next(std::size_t& at) const {
    at += 64;
    return block(at - 64);
  }
  [[gnu::always_inline]] UROCE_AVX512 inline __m512i step(__m512i x, std::size_t& at) const {
    return fold(x, constant(k512), next(at));
  }

  // The first block: `odd` bytes (4 to 63), preceded by zeros, with the state XORed into the first four of them.
  UROCE_AVX512 __m512i odd_block(std::uint32_t state, std::size_t odd) const {
    const std::size_t pad = 64 - odd;
    __m512i value = load_tail(from, pad);
    if (kMask) value = _mm512_or_si512(value, load_tail(ones, pad));
    if (kCopy) store_tail(to, value, pad);
    const auto turned = static_cast<int>(std::rotl(state, static_cast<int>(8 * (pad & 3))));
    return _mm512_xor_si512(value, _mm512_maskz_mov_epi8(__mmask64{15} << pad, _mm512_set1_epi32(turned)));
  }

  UROCE_AVX512 std::uint32_t run(std::uint32_t state, std::size_t bytes) const {
    const std::size_t odd = bytes % 64;
    std::size_t at = 0;
    __m512i x;
    if (odd < 4) {
      for (; at < odd; ++at) {
        const std::byte next = kMask ? from[at] | ones[at] : from[at];
        if (kCopy) to[at] = next;
        state = byte_step(state, next);
      }
      if (at == bytes) return state;
      x = block(at);
      if (kMask) x = _mm512_or_si512(x, load(ones + at));
      x = _mm512_xor_si512(x, _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(state))));
      at += 64;
    } else {
      x = odd_block(state, odd);
      at = odd;
      if (kMask && at < bytes) {
        x = fold(x, constant(k512), _mm512_or_si512(block(at), load(ones + at)));
        at += 64;
      }
    }
    if (bytes - at >= Bulk::kBlocks * 64) return Bulk::run(*this, x, at, bytes);
    while (at < bytes) x = step(x, at);
    return reduce(moved<0>(x));
  }
};

/// Four chains of clmul.
struct FourChains {
  static constexpr std::size_t kBlocks = 7;

  template <class P>
  UROCE_AVX512 static inline std::uint32_t run(P pass, __m512i x, std::size_t at, std::size_t bytes) {
    const __m512i k = constant(k2048);
    while ((bytes - at) % 256 != 192) x = pass.step(x, at);
    __m512i a = x, b = pass.next(at), c = pass.next(at), d = pass.next(at);
    while (at != bytes) {
      a = fold(a, k, pass.next(at));
      b = fold(b, k, pass.next(at));
      c = fold(c, k, pass.next(at));
      d = fold(d, k, pass.next(at));
    }
    return reduce(moved<3>(a, moved<2>(b, moved<1>(c, moved<0>(d)))));
  }
};

inline bool supported() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("vpclmulqdq") &&
         __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("bmi2");
}

}  // namespace uroce::wire::detail::avx512
#endif
