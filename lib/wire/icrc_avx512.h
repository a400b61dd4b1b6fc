// Folding with VPCLMULQDQ on 512-bit registers, in four chains; the odd bytes go first, as in icrc_pclmul.cc, here
// with masked loads and stores.
#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
// gcc 12 takes the undefined operands of its own intrinsics for uninitialised variables (bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <bit>
#include <utility>

#include "wire/icrc_engines.h"

#define UROCE_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,pclmul,vpclmulqdq,bmi2")))

namespace uroce::wire::detail::avx512 {

inline constexpr FoldBy k128 = fold_by(128), k256 = fold_by(256), k384 = fold_by(384), k512 = fold_by(512);

UROCE_AVX512 inline __m512i constant(FoldBy k) {
  return _mm512_set4_epi64(static_cast<long long>(k.high), static_cast<long long>(k.low),
                           static_cast<long long>(k.high), static_cast<long long>(k.low));
}
UROCE_AVX512 inline __m512i load(const std::byte* from) { return _mm512_loadu_si512(from); }
UROCE_AVX512 inline __m512i xor3(__m512i a, __m512i b, __m512i c) {
  return _mm512_ternarylogic_epi64(a, b, c, 0x96);
}
/// `value` moved on as `k` says, plus `more`.
UROCE_AVX512 inline __m512i fold(__m512i value, __m512i k, __m512i more) {
  return xor3(_mm512_clmulepi64_epi128(value, k, 0x00), _mm512_clmulepi64_epi128(value, k, 0x11), more);
}

// 512 bits to 128: the first three lanes are moved to the last one.
UROCE_AVX512 inline __m128i join_lanes(__m512i x) {
  const __m512i k = _mm512_set_epi64(0, 0, static_cast<long long>(k128.high), static_cast<long long>(k128.low),
                                     static_cast<long long>(k256.high), static_cast<long long>(k256.low),
                                     static_cast<long long>(k384.high), static_cast<long long>(k384.low));
  const __m512i moved = fold(x, k, _mm512_maskz_mov_epi64(0xc0, x));
  const __m256i half = _mm256_xor_si256(_mm512_castsi512_si256(moved), _mm512_extracti64x4_epi64(moved, 1));
  return _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

// 128 bits to the 32-bit state: to 96 and 64 bits, then Barrett.
UROCE_AVX512 inline std::uint32_t reduce(__m128i x) {
  const __m128i low32 = _mm_set_epi32(0, 0, 0, -1);
  const __m128i k = _mm_set_epi64x(static_cast<long long>(fold_constant(64)), static_cast<long long>(k128.high));
  x = _mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_srli_si128(x, 8));
  x = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(x, low32), k, 0x10), _mm_srli_si128(x, 4));
  const __m128i barrett = _mm_set_epi64x(0x1f7011641, 0x1db710641);
  __m128i q = _mm_clmulepi64_si128(_mm_and_si128(x, low32), barrett, 0x10);
  q = _mm_clmulepi64_si128(_mm_and_si128(q, low32), barrett, 0x00);
  return static_cast<std::uint32_t>(_mm_extract_epi32(_mm_xor_si128(x, q), 1));
}

/// Bulk::fold(pass, x, at, bytes) folds from Bulk::kBlocks blocks on; x stands for the 64 bytes before `at`, which
/// it moves on. What it leaves, less than a few blocks, is folded one by one.
template <bool kCopy, bool kMask, class Bulk>
struct Pass {
  std::byte* to;
  const std::byte* from;
  const std::byte* ones;

  UROCE_AVX512 __m512i block(std::size_t at) const {
    const __m512i value = load(from + at);
    if (kCopy) _mm512_storeu_si512(to + at, value);
    return value;
  }

  // The first block: `odd` bytes of 4 to 63 behind zeros, the state on the first four of them.
  UROCE_AVX512 __m512i odd_block(std::uint32_t state, std::size_t odd) const {
    const std::size_t pad = 64 - odd;
    const __mmask64 used = ~__mmask64{0} << pad;
    // Lanes that are masked out are not accessed; the addresses are integers as they lie before the arrays.
    const auto source = reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(from) - pad);
    __m512i value = _mm512_maskz_loadu_epi8(used, source);
    if (kMask) {
      const auto mask = reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(ones) - pad);
      value = _mm512_or_si512(value, _mm512_maskz_loadu_epi8(used, mask));
    }
    if (kCopy) {
      _mm512_mask_storeu_epi8(reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(to) - pad), used, value);
    }
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
    if (bytes - at >= Bulk::kBlocks * 64) x = Bulk::fold(*this, x, at, bytes);
    for (; at < bytes; at += 64) x = fold(x, constant(k512), block(at));
    return reduce(join_lanes(x));
  }
};

/// Four chains of clmul.
struct FourChains {
  static constexpr std::size_t kBlocks = 7;

  template <class P>
  UROCE_AVX512 static inline __m512i fold(const P& pass, __m512i x, std::size_t& at, std::size_t bytes) {
    const __m512i k = constant(fold_by(2048));
    __m512i a = x, b = pass.block(at), c = pass.block(at + 64), d = pass.block(at + 128);
    for (at += 192; bytes - at >= 256; at += 256) {
      a = avx512::fold(a, k, pass.block(at));
      b = avx512::fold(b, k, pass.block(at + 64));
      c = avx512::fold(c, k, pass.block(at + 128));
      d = avx512::fold(d, k, pass.block(at + 192));
    }
    d = avx512::fold(c, constant(fold_by(512)), d);
    return avx512::fold(a, constant(fold_by(1536)), avx512::fold(b, constant(fold_by(1024)), d));
  }
};

inline bool supported() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("bmi2");
}

}  // namespace uroce::wire::detail::avx512
#endif
