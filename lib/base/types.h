// Strong types of the InfiniBand transport. Serial numbers compare only by serial arithmetic.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace uroce {

/// Monotonic time in nanoseconds. Protocol code receives it and never reads a clock.
using Nanos = std::uint64_t;
inline constexpr Nanos kNever = ~Nanos{0};
inline constexpr Nanos kMicrosecond = 1'000;
inline constexpr Nanos kMillisecond = 1'000'000;
inline constexpr Nanos kSecond = 1'000'000'000;

/// Time from `then` to `now`; 0 if `now` is earlier, where the difference would wrap around.
constexpr Nanos time_since(Nanos then, Nanos now) { return now > then ? now - then : 0; }

/// A 24-bit serial number (IBTA vol. 1, 9.7.2): ordering holds over a window of 2^23.
template <class Tag>
class Serial24 {
 public:
  static constexpr std::uint32_t kMask = 0xffffff;

  constexpr Serial24() = default;
  constexpr explicit Serial24(std::uint32_t value) : value_(value & kMask) {}

  constexpr std::uint32_t value() const { return value_; }

  constexpr Serial24 operator+(std::uint32_t n) const { return Serial24(value_ + n); }
  constexpr Serial24 operator-(std::uint32_t n) const { return Serial24(value_ - n); }
  constexpr Serial24& operator++() { return *this = *this + 1; }

  /// Signed distance this - other, in [-2^23, 2^23).
  constexpr std::int32_t operator-(Serial24 other) const {
    return static_cast<std::int32_t>((value_ - other.value_) << 8) >> 8;
  }
  constexpr bool before(Serial24 other) const { return (*this - other) < 0; }
  constexpr bool after(Serial24 other) const { return (*this - other) > 0; }
  constexpr bool operator==(const Serial24&) const = default;

 private:
  std::uint32_t value_ = 0;
};

using Psn = Serial24<struct PsnTag>;
using Msn = Serial24<struct MsnTag>;

/// An identifier: it can be compared for equality only.
template <class Tag>
struct Id {
  std::uint32_t value = 0;
  constexpr bool operator==(const Id&) const = default;
};

using Qpn = Id<struct QpnTag>;    ///< 24-bit queue pair number
using Key = Id<struct KeyTag>;    ///< L_Key or R_Key
using PdId = Id<struct PdTag>;    ///< protection domain, unique in the daemon
using CqId = Id<struct CqTag>;    ///< index into the daemon's CQ table
using SrqId = Id<struct SrqTag>;  ///< index into the daemon's SRQ table
using AhId = Id<struct AhTag>;    ///< address handle, unique in the daemon

}  // namespace uroce
