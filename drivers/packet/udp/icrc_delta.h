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
  /// Identifications that solve() finds: 0 to kIdentifications - 1.
  static constexpr std::uint16_t kIdentifications = 64;

  /// The XOR of the ICRCs, as loaded from memory, of two packets that differ in one field of 16 bits: `difference`
  /// is the XOR of its values in host order, `trailing` the bytes from its end to the ICRC.
  std::uint32_t of(std::uint16_t difference, std::size_t trailing);

  /// The value of such a field, less than kIdentifications, that changes the ICRC by `delta` if it replaces 0.
  /// Empty: there is none.
  std::optional<std::uint16_t> solve(std::uint32_t delta, std::size_t trailing);

 private:
  static constexpr std::size_t kSlots = 64;  ///< a power of two; packets of a connection have few lengths

  struct Slot {
    std::size_t trailing = ~std::size_t{0};
    std::array<std::uint32_t, 16> bits{};  ///< delta of each bit of the field
    std::array<std::uint32_t, kIdentifications> values{};
  };
  const Slot& slot_for(std::size_t trailing);

  std::array<Slot, kSlots> slots_;
  std::uint16_t next_ = 0;  ///< segments of one datagram are numbered: the likely answer of solve()
};

}  // namespace uroce::udp
