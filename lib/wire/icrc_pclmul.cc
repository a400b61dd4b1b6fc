// Folding with PCLMULQDQ, 16 bytes at a time in four chains.
//
// Zeros before a message do not change its remainder while the state is zero. So the odd bytes form the first
// block, preceded by zeros, and every later block is full: there is no byte loop at the end.
//
// No byte of the source is used from two loads: it may change at any time, and the CRC is of the bytes written.
#if defined(__x86_64__)
#include <immintrin.h>

#include "wire/icrc_engines.h"

#define UROCE_TARGET __attribute__((target("sse4.2,pclmul")))

namespace uroce::wire::detail {
namespace {

constexpr FoldBy k128 = fold_by(128), k256 = fold_by(256), k384 = fold_by(384), k512 = fold_by(512);
constexpr FoldBy kToEnd = {fold_constant(64 + 32), fold_constant(32)};

UROCE_TARGET inline __m128i constant(FoldBy k) {
  return _mm_set_epi64x(static_cast<long long>(k.high), static_cast<long long>(k.low));
}
UROCE_TARGET inline __m128i load(const std::byte* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
UROCE_TARGET inline void store(std::byte* to, __m128i value) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), value);
}
UROCE_TARGET inline __m128i fold(__m128i value, __m128i k) {
  return _mm_xor_si128(_mm_clmulepi64_si128(value, k, 0x00), _mm_clmulepi64_si128(value, k, 0x11));
}

// Reduces 128 bits to the 32-bit state: both halves to 95 bits at the end of the message, then Barrett reduction.
UROCE_TARGET inline std::uint32_t reduce(__m128i x) {
  const __m128i barrett =
      _mm_set_epi64x(static_cast<long long>(kWholePolynomial), static_cast<long long>(kBarrettQuotient));
  x = fold(x, constant(kToEnd));
  const __m128i quotient = _mm_clmulepi64_si128(x, barrett, 0x00);
  return static_cast<std::uint32_t>(
      _mm_extract_epi32(_mm_xor_si128(x, _mm_clmulepi64_si128(quotient, barrett, 0x10)), 2));
}

// pshufb control that moves the first r bytes of a block to its end and clears the rest: 16 bytes at kShift + r.
alignas(16) constexpr std::array<std::uint8_t, 32> kShift = [] {
  std::array<std::uint8_t, 32> shift{};
  for (std::uint8_t i = 0; i < 32; ++i) shift[i] = i < 16 ? 0x80 : static_cast<std::uint8_t>(i - 16);
  return shift;
}();

// The first and the last bytes of 4 to 15, which overlap; `bytes` of them end a block, preceded by zeros. Of bytes
// in both, those of the last count, which are also stored last.
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
UROCE_TARGET inline __m128i end_of_block(Ends<std::uint64_t> ends, std::size_t bytes) {
  const std::uint64_t low = bytes == 8 ? 0 : ends.first << (8 * (16 - bytes));
  return _mm_set_epi64x(static_cast<long long>(ends.last), static_cast<long long>(low));
}
UROCE_TARGET inline __m128i end_of_block(Ends<std::uint32_t> ends, std::size_t bytes) {
  const auto low = static_cast<std::uint32_t>(std::uint64_t{ends.first} << (8 * (8 - bytes)));
  return _mm_set_epi64x(static_cast<long long>(std::uint64_t{ends.last} << 32 | low), 0);
}

// Common to update, copy and update_masked: a pass that may copy and may set masked bits of the first 64 bytes.
template <bool kCopy, bool kMask>
struct Pass {
  std::byte* to;
  const std::byte* from;
  const std::byte* ones;

  UROCE_TARGET __m128i block(std::size_t at, bool masked) const {
    __m128i value = load(from + at);
    if (kMask && masked) value = _mm_or_si128(value, load(ones + at));
    if (kCopy) store(to + at, value);
    return value;
  }

  template <class T>
  UROCE_TARGET __m128i short_block(std::size_t bytes) const {
    const auto ends = Ends<T>::load(from, bytes);
    if (kCopy) ends.store(to, bytes);
    const __m128i value = end_of_block(ends, bytes);
    return kMask ? _mm_or_si128(value, end_of_block(Ends<T>::load(ones, bytes), bytes)) : value;
  }
  // The first block, with `bytes` modulo 16 odd bytes of 4 to 15.
  UROCE_TARGET __m128i odd_block(__m128i state, std::size_t bytes, std::size_t odd) const {
    const __m128i shift = load(reinterpret_cast<const std::byte*>(kShift.data()) + odd);
    if (bytes >= 16) return _mm_shuffle_epi8(_mm_xor_si128(block(0, true), state), shift);
    const __m128i value = bytes >= 8 ? short_block<std::uint64_t>(bytes) : short_block<std::uint32_t>(bytes);
    return _mm_xor_si128(value, _mm_shuffle_epi8(state, shift));
  }

  // Four chains; x stands for the 16 bytes before `at`.
  UROCE_TARGET __m128i fold_many(__m128i x, std::size_t& at, std::size_t bytes) const {
    const __m128i k = constant(k512);
    __m128i a = x, b = block(at, false), c = block(at + 16, false), d = block(at + 32, false);
    for (at += 48; bytes - at >= 64; at += 64) {
      a = _mm_xor_si128(fold(a, k), block(at, false));
      b = _mm_xor_si128(fold(b, k), block(at + 16, false));
      c = _mm_xor_si128(fold(c, k), block(at + 32, false));
      d = _mm_xor_si128(fold(d, k), block(at + 48, false));
    }
    return _mm_xor_si128(_mm_xor_si128(fold(a, constant(k384)), fold(b, constant(k256))),
                         _mm_xor_si128(fold(c, constant(k128)), d));
  }

  UROCE_TARGET std::uint32_t run(std::uint32_t state, std::size_t bytes) const {
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
    const __m128i k = constant(k128);
    if (kMask) {
      for (; at < 64 && at < bytes; at += 16) x = _mm_xor_si128(fold(x, k), block(at, true));
    }
    if (bytes - at >= 7 * 16) x = fold_many(x, at, bytes);
    for (; at < bytes; at += 16) x = _mm_xor_si128(fold(x, k), block(at, false));
    return reduce(x);
  }
};

UROCE_TARGET std::uint32_t update(std::uint32_t state, const std::byte* data, std::size_t bytes) {
  return Pass<false, false>{nullptr, data, nullptr}.run(state, bytes);
}
UROCE_TARGET std::uint32_t copy(std::uint32_t state, std::byte* to, const std::byte* from, std::size_t bytes) {
  return Pass<true, false>{to, from, nullptr}.run(state, bytes);
}
UROCE_TARGET std::uint32_t update_masked(std::uint32_t state, const std::byte* data, std::size_t bytes,
                                         const std::byte* ones) {
  return Pass<false, true>{nullptr, data, ones}.run(state, bytes);
}

bool supported() { return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.2"); }

}  // namespace

constinit const CrcEngine kPclmulEngine = {"pclmulqdq", supported, update, copy, update_masked, copy_after<copy>};

}  // namespace uroce::wire::detail
#endif
