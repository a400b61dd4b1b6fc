// The base transport header (IBTA vol. 1, 9.2).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/types.h"
#include "wire/bytes.h"

namespace uroce::wire {

inline constexpr std::size_t kBthBytes = 12;
inline constexpr std::uint16_t kDefaultPkey = 0xffff;

struct Bth {
  static constexpr std::size_t kBytes = kBthBytes;
  std::uint8_t opcode = 0;
  bool solicited = false;
  bool migreq = true;
  std::uint8_t pad = 0;      ///< PadCnt: bytes of pad after the payload, 0-3
  std::uint8_t version = 0;  ///< TVer; 0 is the only one
  std::uint16_t pkey = kDefaultPkey;
  bool fecn = false, becn = false;
  Qpn dest_qpn;
  bool ack_req = false;
  Psn psn;
  static Bth parse(const std::byte* from);
  void emit(std::byte* to) const;
};

/// The words of a BTH in memory order, with `pad` in place of bth.pad.
inline std::array<std::uint32_t, 3> words_of(const Bth& bth, unsigned pad) {
  const unsigned byte1 =
      unsigned{bth.solicited} << 7 | unsigned{bth.migreq} << 6 | (pad & 3u) << 4 | (bth.version & 15u);
  return {
      swap_bytes(std::uint32_t{bth.opcode} << 24 | byte1 << 16 | bth.pkey),
      swap_bytes(std::uint32_t{bth.fecn} << 31 | std::uint32_t{bth.becn} << 30 | (bth.dest_qpn.value & 0xffffff)),
      swap_bytes(std::uint32_t{bth.ack_req} << 31 | bth.psn.value())};
}
/// Stores each word separately: loads of the same size then forward from these stores.
inline void emit(const std::array<std::uint32_t, 3>& bth, std::byte* to) {
  store_raw(to, bth[0]);
  store_raw(to + 4, bth[1]);
  store_raw(to + 8, bth[2]);
}
inline void Bth::emit(std::byte* to) const { wire::emit(words_of(*this, pad), to); }

inline Bth Bth::parse(const std::byte* from) {
  const std::uint32_t first = load32(from), qpn = load32(from + 4), psn = load32(from + 8);
  Bth bth;
  bth.opcode = static_cast<std::uint8_t>(first >> 24);
  bth.solicited = (first & 0x800000) != 0;
  bth.migreq = (first & 0x400000) != 0;
  bth.pad = (first >> 20) & 3;
  bth.version = (first >> 16) & 15;
  bth.pkey = static_cast<std::uint16_t>(first);
  bth.fecn = (qpn & 0x80000000) != 0;
  bth.becn = (qpn & 0x40000000) != 0;
  bth.dest_qpn = Qpn{qpn & 0xffffff};
  bth.ack_req = (psn & 0x80000000) != 0;
  bth.psn = Psn(psn);
  return bth;
}

}  // namespace uroce::wire
