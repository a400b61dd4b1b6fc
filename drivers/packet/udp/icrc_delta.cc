#include "drivers/packet/udp/icrc_delta.h"

#include <algorithm>
#include <bit>

#include "wire/icrc.h"

namespace uroce::udp {
namespace {

constexpr std::uint32_t kPolynomial = 0xedb88320;  // of IEEE 802.3, bits reversed

std::uint32_t sum_of_bits(const std::array<std::uint32_t, 16>& bits, std::uint32_t value) {
  std::uint32_t sum = 0;
  for (; value != 0; value &= value - 1) sum ^= bits[static_cast<std::size_t>(std::countr_zero(value))];
  return sum;
}

}  // namespace

const IcrcDelta::Slot& IcrcDelta::slot_for(std::size_t trailing) {
  // Lengths are multiples of 4.
  Slot& slot = slots_[(trailing >> 2 ^ trailing >> 8) % kSlots];
  if (slot.trailing == trailing) return slot;
  // The CRC takes each byte from its lowest bit on, so the last bit of a field is the highest one of its second
  // byte. The bit before it is one multiplication by x further from the end.
  constexpr std::array<std::byte, 2> kLastBit{std::byte{0}, std::byte{0x80}};
  constexpr std::array<std::byte, 256> kZeros{};
  const wire::CrcEngine& crc = wire::crc_engine();
  std::uint32_t state = crc.update(0, kLastBit.data(), kLastBit.size());
  for (std::size_t left = trailing; left != 0;) {
    const std::size_t bytes = std::min(left, kZeros.size());
    state = crc.update(state, kZeros.data(), bytes);
    left -= bytes;
  }
  for (const std::size_t first : {0u, 8u}) {  // big-endian: bits 0 to 7 are in the second byte
    for (std::size_t bit = 8; bit-- != 0;) {
      slot.bits[first + bit] = state;
      state = state >> 1 ^ ((state & 1) != 0 ? kPolynomial : 0);
    }
  }
  for (std::uint32_t value = 0; value < kIdentifications; ++value) {
    slot.values[value] = sum_of_bits(slot.bits, value);
  }
  eliminate(slot);
  slot.trailing = trailing;
  return slot;
}

/// Gaussian elimination. A CRC of 32 bits tells all values of 16 neighbouring bits apart, so no equation is empty.
void IcrcDelta::eliminate(Slot& slot) {
  for (std::size_t i = 0; i < slot.equations.size(); ++i) {
    Equation& equation = slot.equations[i];
    equation = {.delta = slot.bits[i], .value = static_cast<std::uint16_t>(1u << i)};
    for (std::size_t earlier = 0; earlier < i; ++earlier) {
      const Equation& with = slot.equations[earlier];
      if ((equation.delta >> with.pivot & 1) == 0) continue;
      equation.delta ^= with.delta;
      equation.value ^= with.value;
    }
    equation.pivot = static_cast<std::uint8_t>(std::countr_zero(equation.delta));
  }
}

std::uint32_t IcrcDelta::of(std::uint16_t difference, std::size_t trailing) {
  return difference == 0 ? 0 : sum_of_bits(slot_for(trailing).bits, difference);
}

std::optional<std::uint16_t> IcrcDelta::solve(std::uint32_t delta, std::size_t trailing) {
  if (delta == 0) return next_ = 1, std::uint16_t{0};
  const Slot& slot = slot_for(trailing);
  std::uint32_t found = next_;
  if (found >= slot.values.size() || slot.values[found] != delta) {
    found = 0;
    for (const Equation& equation : slot.equations) {
      const std::uint32_t mask = 0u - (delta >> equation.pivot & 1);  // no branch: each is taken half of the time
      delta ^= equation.delta & mask;
      found ^= equation.value & mask;
    }
    if (delta != 0) return std::nullopt;
  }
  next_ = static_cast<std::uint16_t>(found + 1);
  return static_cast<std::uint16_t>(found);
}

}  // namespace uroce::udp
