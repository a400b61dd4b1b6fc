// Shared by the ICRC implementations: the polynomial, its folding constants, and the table of engines.
// Private to lib/wire.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "wire/bytes.h"
#include "wire/icrc.h"

namespace uroce::wire::detail {

inline constexpr std::uint32_t kPolynomial = 0x04c11db7;
inline constexpr std::uint32_t kReflectedPolynomial = 0xedb88320;

/// State after the 8 bytes of ones that stand for the local route header.
inline constexpr std::uint32_t kSeed = 0xdebb20e3;

constexpr std::uint32_t reflect(std::uint32_t value) {
  std::uint32_t out = 0;
  for (int i = 0; i < 32; ++i) out |= ((value >> i) & 1) << (31 - i);
  return out;
}

/// r * x modulo the polynomial, highest power in the highest bit.
constexpr std::uint32_t times_x(std::uint32_t r) { return (r << 1) ^ ((r & 0x80000000) != 0 ? kPolynomial : 0); }
/// x^n modulo the polynomial.
constexpr std::uint32_t power(unsigned n) {
  std::uint32_t r = 1;
  for (unsigned i = 0; i < n; ++i) r = times_x(r);
  return r;
}

/// x^n modulo the polynomial, reflected and shifted by one, as the carry-less product of reflected operands
/// requires (Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ", 2009).
constexpr std::uint64_t fold_constant(unsigned n) { return std::uint64_t{reflect(power(n))} << 1; }
/// Factors of the low and the high half of a 128-bit remainder that move it by `bits`.
struct FoldBy {
  std::uint64_t low, high;
};
constexpr FoldBy fold_by(unsigned bits) { return {fold_constant(bits + 32), fold_constant(bits - 32)}; }

/// The quotient of x^95 by the polynomial, and the polynomial itself, reflected: these reduce 95 bits to 32
/// (Barrett).
constexpr std::uint64_t barrett_quotient() {
  std::uint64_t quotient = 0, rest = 0;
  for (unsigned i = 0; i < 96; ++i) {
    rest = rest << 1 | (i == 0 ? 1 : 0);
    if ((rest >> 32) == 0) continue;
    rest ^= std::uint64_t{1} << 32 | kPolynomial;
    quotient |= std::uint64_t{1} << (i - 32);
  }
  return quotient;
}
inline constexpr std::uint64_t kBarrettQuotient = barrett_quotient();
inline constexpr std::uint64_t kWholePolynomial = std::uint64_t{kReflectedPolynomial} << 1 | 1;

static_assert(fold_by(512).low == 0x154442bd4 && fold_by(512).high == 0x1c6e41596);
static_assert(fold_by(128).low == 0x1751997d0 && fold_by(128).high == 0x0ccaa009e);

constexpr std::array<std::uint32_t, 256> byte_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t r = i;
    for (int bit = 0; bit < 8; ++bit) r = (r >> 1) ^ ((r & 1) != 0 ? kReflectedPolynomial : 0);
    table[i] = r;
  }
  return table;
}

/// Slicing by 8: table k advances a byte by k more zero bytes.
constexpr std::array<std::array<std::uint32_t, 256>, 8> slice_tables() {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  tables[0] = byte_table();
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t i = 0; i < 256; ++i) {
      tables[k][i] = (tables[k - 1][i] >> 8) ^ tables[0][tables[k - 1][i] & 0xff];
    }
  }
  return tables;
}
inline constexpr auto kSlices = slice_tables();

inline std::uint32_t byte_step(std::uint32_t state, std::byte next) {
  return (state >> 8) ^ kSlices[0][(state ^ static_cast<std::uint32_t>(next)) & 0xff];
}

inline std::uint32_t word_step(std::uint32_t state, std::uint32_t word) {
  state ^= word;
  return kSlices[3][state & 0xff] ^ kSlices[2][state >> 8 & 0xff] ^ kSlices[1][state >> 16 & 0xff] ^
         kSlices[0][state >> 24];
}
/// CrcEngine::copy_after for an engine without a combined implementation.
template <auto kCopy>
std::uint32_t copy_after(std::uint32_t state, std::uint32_t word, std::byte* to, const std::byte* from,
                         std::size_t bytes) {
  return kCopy(word_step(state, word), to, from, bytes);
}

extern const CrcEngine kPortableEngine;
#if defined(__x86_64__)
extern const CrcEngine kPclmulEngine;
extern const CrcEngine kVpclmul256Engine;
extern const CrcEngine kVpclmulEngine;
extern const CrcEngine kGfniEngine;
#elif defined(__aarch64__)
extern const CrcEngine kPmullEngine;
#endif

}  // namespace uroce::wire::detail
