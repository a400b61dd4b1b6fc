// What a change of one header field changes in the ICRC, without reading the packet again: a CRC is linear, so the
// XOR of two packets' ICRCs depends on the XOR of their bits and on the number of bytes after these only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace uroce::udp {

class IcrcDelta {
 public:
  /// Packets of one datagram, and their identifications, 0 to kIdentifications - 1: solve() finds these first.
  static constexpr std::uint16_t kIdentifications = 64;

  /// The XOR of the ICRCs, as loaded from memory, of two packets that differ in one field of 16 bits: `difference`
  /// is the XOR of its values in host order, `trailing` the bytes from its end to the ICRC.
  std::uint32_t of(std::uint16_t difference, std::size_t trailing);

  /// The value of such a field that changes the ICRC by `delta` if it replaces 0. Empty: there is none. Of the 2^32
  /// values of `delta`, 65,536 have one, each another.
  std::optional<std::uint16_t> solve(std::uint32_t delta, std::size_t trailing);

 private:
  static constexpr std::size_t kSlots = 64;  ///< a power of two; packets of a connection have few lengths

  /// One equation of the field's bits, in echelon form: if `pivot` of delta is set, `value` is part of the answer.
  struct Equation {
    std::uint32_t delta = 0;
    std::uint16_t value = 0;
    std::uint8_t pivot = 0;  ///< a bit of `delta` that no later equation has
  };
  struct Slot {
    std::size_t trailing = ~std::size_t{0};
    std::array<std::uint32_t, 16> bits{};  ///< delta of each bit of the field
    std::array<std::uint32_t, kIdentifications> values{};
    std::array<Equation, 16> equations{};
  };
  const Slot& slot_for(std::size_t trailing);
  static void eliminate(Slot& slot);

  std::array<Slot, kSlots> slots_;
  std::uint16_t next_ = 0;  ///< segments of one datagram are numbered: the likely answer of solve()
};

}  // namespace uroce::udp
