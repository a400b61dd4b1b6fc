// Carry-less multiplication on 128-bit registers.
#if defined(__x86_64__)
#include "wire/icrc_pclmul.h"

namespace uroce::wire::detail {
namespace {

constexpr FoldBy k256 = fold_by(256), k384 = fold_by(384), k512 = fold_by(512);

/// Four chains; x begins the first.
struct FourChains {
  static constexpr std::size_t kBytes = 7 * 16;

  template <class P>
  UROCE_PCLMUL static inline std::uint32_t run(P pass, __m128i x, std::size_t at, std::size_t bytes) {
    const __m128i k = pclmul::constant(k512);
    __m128i a = x, b = pass.block(at), c = pass.block(at + 16), d = pass.block(at + 32);
    for (at += 48; bytes - at >= 64; at += 64) {
      a = _mm_xor_si128(pclmul::fold(a, k), pass.block(at));
      b = _mm_xor_si128(pclmul::fold(b, k), pass.block(at + 16));
      c = _mm_xor_si128(pclmul::fold(c, k), pass.block(at + 32));
      d = _mm_xor_si128(pclmul::fold(d, k), pass.block(at + 48));
    }
    x = _mm_xor_si128(
        _mm_xor_si128(pclmul::fold(a, pclmul::constant(k384)), pclmul::fold(b, pclmul::constant(k256))),
        _mm_xor_si128(pclmul::fold(c, pclmul::constant(pclmul::k128)), d));
    while (at < bytes) x = pass.step(x, at);
    return pclmul::reduce(x);
  }
};

}  // namespace

constinit const CrcEngine kPclmulEngine = {"pclmulqdq",
                                           pclmul::supported,
                                           pclmul::update<FourChains>,
                                           pclmul::copy<FourChains>,
                                           pclmul::update_masked<FourChains>,
                                           pclmul::copy_after<FourChains>};

}  // namespace uroce::wire::detail
#endif
