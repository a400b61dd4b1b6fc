// The bulk of a long message without carry-less multiplication, whose rate bounds icrc_vpclmul.cc: with 8x8 bit
// matrices (GF2P8AFFINEQB), of which a CPU does two to four times as many.
//
// Call the message's 64-byte blocks y0, y1, ... To move a byte of block i by 8 blocks is to multiply it by x^4096,
// and modulo the polynomial that equals a sum of four bytes, at the same place in blocks i+4, i+6, i+7 and i+8,
// each an 8x8 matrix times the byte: 32 unknown bits for 32 bits of remainder. The product does not depend on the
// byte's place in its block, so each matrix holds for all 64, and block i is folded into the next eight with four
// instructions:
//   y[i] = data[i] + A0 y[i-4] + A1 y[i-6] + A2 y[i-7] + A3 y[i-8]
// With a smaller first offset the chain of additions would bound the loop. Folding some of the blocks with clmul
// instead made copies slower.
#if defined(__x86_64__)
#include "wire/icrc_avx512.h"

#define UROCE_GFNI __attribute__((target(UROCE_AVX512_TARGETS ",gfni")))
#define UROCE_GFNI_INLINE [[gnu::always_inline]] UROCE_GFNI inline

namespace uroce::wire::detail {
namespace {

constexpr unsigned kMatrices = 4;
constexpr unsigned kOffset[kMatrices] = {4, 6, 7, 8};
constexpr unsigned kWindow = kOffset[kMatrices - 1];

/// Matrix m moves a byte kOffset[m] blocks on, in the operand format of GF2P8AFFINEQB.
constexpr std::array<std::uint64_t, kMatrices> make_matrices() {
  // One equation for each power of the remainder: bits 0-31 are the unknowns in it (8 for each matrix, by the power
  // that they stand for), bits 32-39 the powers of the input for which its right side is one.
  std::array<std::uint64_t, 32> equation{};
  const auto enter = [&](unsigned blocks, unsigned column) {
    std::uint32_t r = power(512 * blocks);
    for (unsigned u = 0; u < 8; ++u, r = times_x(r)) {
      for (unsigned i = 0; i < 32; ++i) equation[i] |= std::uint64_t{(r >> i) & 1} << (column + u);
    }
  };
  for (unsigned m = 0; m < kMatrices; ++m) enter(kWindow - kOffset[m], 8 * m);
  enter(kWindow, 32);
  for (unsigned c = 0; c < 32; ++c) {
    unsigned pivot = c;
    while ((equation[pivot] >> c & 1) == 0) ++pivot;  // without a solution: past the end, an error at compile time
    std::swap(equation[c], equation[pivot]);
    for (unsigned i = 0; i < 32; ++i) {
      if (i != c && (equation[i] >> c & 1) != 0) equation[i] ^= equation[c];
    }
  }
  // A byte's bit t stands for power 7 - t; row i of a matrix is byte 7 - i of its operand.
  std::array<std::uint64_t, kMatrices> matrices{};
  for (unsigned m = 0; m < kMatrices; ++m) {
    for (unsigned out = 0; out < 8; ++out) {
      for (unsigned in = 0; in < 8; ++in) {
        matrices[m] |= (equation[8 * m + 7 - out] >> (32 + 7 - in) & 1) << (8 * (7 - out) + in);
      }
    }
  }
  return matrices;
}
constexpr auto kMatrix = make_matrices();

// Packets of a message follow each other in memory, so the bytes past the end belong to the next packet; a prefetch
// does not fault.
constexpr std::size_t kAhead = 1024;

struct Affine {
  static constexpr std::size_t kBlocks = 2 * kWindow - 1;

  template <unsigned kIndex>
  UROCE_GFNI_INLINE static __m512i times(__m512i y) {
    return _mm512_gf2p8affine_epi64_epi8(y, _mm512_set1_epi64(static_cast<long long>(kMatrix[kIndex])), 0);
  }
  /// The next y, from those kOffset blocks ago.
  UROCE_GFNI_INLINE static __m512i next(__m512i data, __m512i y0, __m512i y1, __m512i y2, __m512i y3) {
    return avx512::xor3(avx512::xor3(data, times<3>(y3), times<2>(y2)), times<1>(y1), times<0>(y0));
  }

  // The pass is a copy whose address is not taken: otherwise the compiler would assume that each store may change
  // its pointers, and load them again for each block.
  template <class P>
  [[gnu::noinline]] UROCE_GFNI static std::uint32_t run(P pass, __m512i x, std::size_t at, std::size_t bytes) {
    while ((bytes - at) % (64 * kWindow) != 64 * (kWindow - 1)) x = pass.step(x, at);
    // The last y, oldest first.
    __m512i a = x, b = pass.next(at), c = pass.next(at), d = pass.next(at);
    __m512i e = _mm512_xor_si512(pass.next(at), times<0>(a));
    __m512i f = _mm512_xor_si512(pass.next(at), times<0>(b));
    __m512i g = avx512::xor3(pass.next(at), times<1>(a), times<0>(c));
    __m512i h = _mm512_xor_si512(avx512::xor3(pass.next(at), times<2>(a), times<1>(b)), times<0>(d));
    while (bytes - at != 64 * kWindow) {
      for (std::size_t i = 0; i < kWindow; ++i) {
        _mm_prefetch(reinterpret_cast<const char*>(pass.from + at + kAhead + 64 * i), _MM_HINT_T0);
      }
      a = next(pass.next(at), e, c, b, a);
      b = next(pass.next(at), f, d, c, b);
      c = next(pass.next(at), g, e, d, c);
      d = next(pass.next(at), h, f, e, d);
      e = next(pass.next(at), a, g, f, e);
      f = next(pass.next(at), b, h, g, f);
      g = next(pass.next(at), c, a, h, g);
      h = next(pass.next(at), d, b, a, h);
    }
    // The last blocks absorb those before them, and clmul moves each of them to the end.
    const __m512i s = next(pass.next(at), e, c, b, a);
    __m512i sum = avx512::moved<7>(s);
    sum = avx512::moved<6>(next(pass.next(at), f, d, c, b), sum);
    sum = avx512::moved<5>(next(pass.next(at), g, e, d, c), sum);
    sum = avx512::moved<4>(next(pass.next(at), h, f, e, d), sum);
    const __m512i w = _mm512_xor_si512(avx512::xor3(pass.next(at), times<3>(e), times<2>(f)), times<1>(g));
    sum = avx512::moved<3>(w, sum);
    const __m512i v = _mm512_xor_si512(avx512::xor3(pass.next(at), times<3>(f), times<2>(g)), times<1>(h));
    sum = avx512::moved<2>(v, sum);
    sum = avx512::moved<1>(avx512::xor3(pass.next(at), times<3>(g), times<2>(h)), sum);
    const std::uint32_t crc = avx512::reduce(avx512::moved<0>(_mm512_xor_si512(pass.next(at), times<3>(h)), sum));
    // The compiler leaves this to the caller of a function with a vector parameter, and a tail call has none.
    _mm256_zeroupper();
    return crc;
  }
};

/// From this length the matrices process more than one window, and are faster than clmul.
constexpr std::size_t kLong = 64 * (Affine::kBlocks + 1);

// Not inline, so that short messages do not pay for the registers that this function saves.
template <bool kCopy, bool kMask>
[[gnu::noinline]] UROCE_GFNI std::uint32_t run_long(std::uint32_t state, std::byte* to, const std::byte* from,
                                                    const std::byte* ones, std::size_t bytes) {
  return avx512::Pass<kCopy, kMask, Affine>{to, from, ones}.run(state, bytes);
}

UROCE_GFNI std::uint32_t update(std::uint32_t state, const std::byte* data, std::size_t bytes) {
  if (bytes >= kLong) return run_long<false, false>(state, nullptr, data, nullptr, bytes);
  return avx512::Pass<false, false, avx512::FourChains>{nullptr, data, nullptr}.run(state, bytes);
}
UROCE_GFNI std::uint32_t copy(std::uint32_t state, std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes >= kLong) return run_long<true, false>(state, to, from, nullptr, bytes);
  return avx512::Pass<true, false, avx512::FourChains>{to, from, nullptr}.run(state, bytes);
}
UROCE_GFNI std::uint32_t update_masked(std::uint32_t state, const std::byte* data, std::size_t bytes,
                                       const std::byte* ones) {
  if (bytes >= kLong) return run_long<false, true>(state, nullptr, data, ones, bytes);
  return avx512::Pass<false, true, avx512::FourChains>{nullptr, data, ones}.run(state, bytes);
}

/// The word, XORed with the state, ends the block before the first one, which saves the table lookup.
UROCE_GFNI std::uint32_t copy_after(std::uint32_t state, std::uint32_t word, std::byte* to, const std::byte* from,
                                    std::size_t bytes) {
  if (bytes % 64 != 0 || bytes == 0) return copy(word_step(state, word), to, from, bytes);
  __m512i x = _mm512_maskz_set1_epi32(1 << 15, static_cast<int>(state ^ word));
  if (bytes >= kLong) return Affine::run(avx512::Pass<true, false, Affine>{to, from, nullptr}, x, 0, bytes);
  const avx512::Pass<true, false, avx512::FourChains> pass{to, from, nullptr};
  for (std::size_t at = 0; at < bytes;) x = pass.step(x, at);
  return avx512::reduce(avx512::moved<0>(x));
}

bool supported() { return avx512::supported() && __builtin_cpu_supports("gfni"); }

}  // namespace

constinit const CrcEngine kGfniEngine = {"gfni", supported, update, copy, update_masked, copy_after};

}  // namespace uroce::wire::detail
#endif
