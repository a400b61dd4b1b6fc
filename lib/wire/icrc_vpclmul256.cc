// Carry-less multiplication on 256-bit registers, for CPUs with VPCLMULQDQ and AVX2 but without AVX-512 (Zen 3,
// Alder Lake). Short messages and the first bytes of long ones use 128-bit registers.
#if defined(__x86_64__)
#include "wire/icrc_clmul.h"

#define UROCE_AVX2 __attribute__((target("avx2,pclmul,vpclmulqdq")))
#define UROCE_AVX2_INLINE [[gnu::always_inline]] UROCE_AVX2 inline

namespace uroce::wire::detail {
namespace {

constexpr FoldBy k256 = fold_by(256), k1024 = fold_by(1024);
constexpr std::size_t kBlock = 32;

UROCE_AVX2_INLINE __m256i constant(FoldBy k) {
  return _mm256_set_epi64x(static_cast<long long>(k.high), static_cast<long long>(k.low),
                           static_cast<long long>(k.high), static_cast<long long>(k.low));
}
/// `value` moved by `k`, plus `more`.
UROCE_AVX2_INLINE __m256i fold(__m256i value, __m256i k, __m256i more) {
  // The first addition does not wait for the products, which are on the critical path of a chain.
  return _mm256_xor_si256(_mm256_xor_si256(more, _mm256_clmulepi64_epi128(value, k, 0x00)),
                          _mm256_clmulepi64_epi128(value, k, 0x11));
}

/// `value`, which kBlocks blocks follow, moved to the end of the message, plus `more`: lanes of 95 bits.
template <unsigned kBlocks>
UROCE_AVX2_INLINE __m256i moved(__m256i value, __m256i more) {
  constexpr auto half = [](unsigned i) {
    return static_cast<long long>(fold_constant(256 * kBlocks + 64 * (3 - i) + 32));
  };
  constexpr long long k0 = half(0), k1 = half(1), k2 = half(2), k3 = half(3);
  return fold(value, _mm256_set_epi64x(k3, k2, k1, k0), more);
}

template <bool kCopy>
struct Blocks {
  std::byte* to;
  const std::byte* from;

  UROCE_AVX2_INLINE __m256i next(std::size_t& at) const {
    const __m256i value = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at));
    if (kCopy) _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + at), value);
    at += kBlock;
    return value;
  }
};

/// Four chains.
struct Wide {
  static constexpr std::size_t kBytes = 3 * kBlock;  // the least that fills the chains; faster from there on

  template <bool kCopy, bool kMask>
  [[gnu::noinline]] UROCE_AVX2 static std::uint32_t run(clmul::Pass<kCopy, kMask, Wide> pass, __m128i first,
                                                        std::size_t at, std::size_t bytes) {
    if ((bytes - at) % kBlock != 0) first = pass.step(first, at);
    // The block that ends with the 16 bytes before `at`, preceded by zeros.
    __m256i x = _mm256_permute2x128_si256(_mm256_castsi128_si256(first), _mm256_castsi128_si256(first), 0x08);
    const Blocks<kCopy> blocks{pass.to, pass.from};
    while ((bytes - at) % (4 * kBlock) != 3 * kBlock) x = fold(x, constant(k256), blocks.next(at));
    const __m256i k = constant(k1024);
    __m256i a = x, b = blocks.next(at), c = blocks.next(at), d = blocks.next(at);
    while (at != bytes) {
      a = fold(a, k, blocks.next(at));
      b = fold(b, k, blocks.next(at));
      c = fold(c, k, blocks.next(at));
      d = fold(d, k, blocks.next(at));
    }
    const __m256i sum = moved<3>(a, moved<2>(b, moved<1>(c, moved<0>(d, _mm256_setzero_si256()))));
    return clmul::reduce95(_mm_xor_si128(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1)));
  }
};

bool supported() {
  return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("avx2") &&
         __builtin_cpu_supports("vpclmulqdq");
}

}  // namespace

constinit const CrcEngine kVpclmul256Engine = {
    "vpclmulqdq256",        supported, clmul::update<Wide>, clmul::copy<Wide>, clmul::update_masked<Wide>,
    clmul::copy_after<Wide>};

}  // namespace uroce::wire::detail
#endif
