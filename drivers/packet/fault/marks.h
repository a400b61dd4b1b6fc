// What the injector did to a frame, for a capture: bits of base::Frame::flags, which devices and transports ignore.
#pragma once

#include <cstdint>

namespace uroce::fault {

enum Mark : std::uint32_t {
  kMarkDropped = 1u << 20,
  kMarkDuplicated = 1u << 21,
  kMarkCorrupted = 1u << 22,
  kMarkHeld = 1u << 23,     ///< delayed or reordered
  kMarkRefused = 1u << 24,  ///< an acknowledge was made a NAK
};
inline constexpr std::uint32_t kMarks = kMarkDropped | kMarkDuplicated | kMarkCorrupted | kMarkHeld | kMarkRefused;

}  // namespace uroce::fault
