// The extended transport headers that follow the BTH (IBTA vol. 1, 9.3) as values. parse reads and emit writes
// exactly kBytes; parse checks nothing.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/types.h"
#include "wire/bytes.h"

namespace uroce::wire {

/// RDMA extended transport header.
struct Reth {
  static constexpr std::size_t kBytes = 16;
  std::uint64_t address = 0;
  Key rkey;
  std::uint32_t length = 0;
  static Reth parse(const std::byte* from) { return {load64(from), Key{load32(from + 8)}, load32(from + 12)}; }
  void emit(std::byte* to) const {
    store64(to, address);
    store32(to + 8, rkey.value);
    store32(to + 12, length);
  }
};

/// ATOMIC extended transport header: compare and swap, fetch and add.
struct AtomicEth {
  static constexpr std::size_t kBytes = 28;
  std::uint64_t address = 0;
  Key rkey;
  std::uint64_t swap_or_add = 0;
  std::uint64_t compare = 0;
  static AtomicEth parse(const std::byte* from) {
    return {load64(from), Key{load32(from + 8)}, load64(from + 12), load64(from + 20)};
  }
  void emit(std::byte* to) const {
    store64(to, address);
    store32(to + 8, rkey.value);
    store64(to + 12, swap_or_add);
    store64(to + 20, compare);
  }
};

/// ACK extended transport header: of acknowledges, and of READ and atomic responses.
struct Aeth {
  static constexpr std::size_t kBytes = 4;
  std::uint8_t syndrome = 0;  ///< kAckUnlimited, kRnrNak | timer code, or a Nak
  Msn msn;
  static Aeth parse(const std::byte* from) { return {load8(from), Msn(load32(from))}; }
  void emit(std::byte* to) const { store32(to, std::uint32_t{syndrome} << 24 | msn.value()); }
};

/// ATOMIC acknowledge extended transport header: the value before the operation.
struct AtomicAckEth {
  static constexpr std::size_t kBytes = 8;
  std::uint64_t original = 0;
  static AtomicAckEth parse(const std::byte* from) { return {load64(from)}; }
  void emit(std::byte* to) const { store64(to, original); }
};

/// Datagram extended transport header.
struct Deth {
  static constexpr std::size_t kBytes = 8;
  std::uint32_t qkey = 0;
  Qpn source_qpn;
  static Deth parse(const std::byte* from) { return {load32(from), Qpn{load32(from + 4) & 0xffffff}}; }
  void emit(std::byte* to) const {
    store32(to, qkey);
    store32(to + 4, source_qpn.value & 0xffffff);
  }
};

/// Immediate data in wire byte order: passed through unchanged.
struct ImmDt {
  static constexpr std::size_t kBytes = 4;
  std::uint32_t value = 0;
  static ImmDt parse(const std::byte* from) { return {load_raw<std::uint32_t>(from)}; }
  void emit(std::byte* to) const { store_raw(to, value); }
};

/// Invalidate extended transport header: the R_Key to invalidate.
struct Ieth {
  static constexpr std::size_t kBytes = 4;
  Key rkey;
  static Ieth parse(const std::byte* from) { return {Key{load32(from)}}; }
  void emit(std::byte* to) const { store32(to, rkey.value); }
};

/// XRC extended transport header (annex A14): the receiver's SRQ number.
struct XrcEth {
  static constexpr std::size_t kBytes = 4;
  std::uint32_t srqn = 0;
  static XrcEth parse(const std::byte* from) { return {load32(from) & 0xffffff}; }
  void emit(std::byte* to) const { store32(to, srqn & 0xffffff); }
};

/// Reliable datagram extended transport header.
struct Rdeth {
  static constexpr std::size_t kBytes = 4;
  std::uint32_t ee_context = 0;
  static Rdeth parse(const std::byte* from) { return {load32(from) & 0xffffff}; }
  void emit(std::byte* to) const { store32(to, ee_context & 0xffffff); }
};

/// FLUSH extended transport header (annex A19): placement type in bits 0-3, selectivity level in bits 4-5.
struct Feth {
  static constexpr std::size_t kBytes = 4;
  std::uint32_t bits = 0;
  static Feth parse(const std::byte* from) { return {load32(from)}; }
  void emit(std::byte* to) const { store32(to, bits); }
};

/// AETH syndromes (IBTA vol. 1, table 44).
inline constexpr std::uint8_t kAckUnlimited = 0x1f;

/// The credit count of an ACK, 5 bits: 0, 1, 2, 3, 4, 6, 8, 12, 16, ... 32768 receives (IBTA vol. 1, table 45:
/// end-to-end flow control credits). The code for at most that many.
constexpr std::uint8_t credit_code(std::uint32_t receives) {
  if (receives < 2) return static_cast<std::uint8_t>(receives);
  const auto exponent = static_cast<unsigned>(std::bit_width(receives)) - 1;
  return static_cast<std::uint8_t>(std::min(30u, 2 * exponent + (receives >> (exponent - 1) & 1)));
}
/// `syndrome`: of an ACK; its upper 3 bits are not part of the count.
constexpr std::uint32_t credits_of(std::uint8_t syndrome) {
  const unsigned code = syndrome & 0x1fu;
  return code < 2 ? code : (2u + (code & 1u)) << (code / 2 - 1);
}
inline constexpr std::uint8_t kRnrNak = 0x20;  ///< | timer code
enum class Nak : std::uint8_t {
  kSequence = 0x60,
  kInvalidRequest = 0x61,
  kRemoteAccess = 0x62,
  kRemoteOperational = 0x63,
  kInvalidRdRequest = 0x64,
};

}  // namespace uroce::wire
