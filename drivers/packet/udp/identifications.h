// Which IPv4 identification a packet may have. No socket shows it; IcrcDelta::solve() finds the one for which the
// ICRC is right, and one damaged packet in 65,536 has such a one, too. A sender's packets before it tell which are
// likely.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/types.h"

namespace uroce::udp {

/// What `--port udp,id=...` accepts.
enum class IdCheck : std::uint8_t {
  kZero,   ///< 0, and i for packet i of a datagram that Linux cuts
  kCount,  ///< in addition: a sender's next number, or one soon after it
  kAny,    ///< any
};

/// The senders of packets and how they number these, for IdCheck::kCount.
///
/// The first packet of an unknown sender is accepted, and always one with 0 or a place in a row; two of these show
/// that the sender does not count. From a sender that counts, numbers near its last one are accepted, the more of
/// them the longer ago that was: in the meantime it sends to other workers, and Linux skips numbers
/// (ip_idents_reserve(), net/ipv4/route.c). Any other number is refused, but if the next packet has one near that,
/// the sender counts from there.
class Identifications {
 public:
  static constexpr std::uint32_t kAhead = 256, kBehind = 256;  ///< numbers near the last one, without a pause
  static constexpr Nanos kEach = kMicrosecond;                 ///< of pause, for one number more

  /// Whether a packet that is intact if it has `identification` is taken for intact. `source` is its IPv4 address.
  /// `settled`: accepts() would accept all packets of this sender whose number is a place in a row, and remember
  /// nothing.
  bool accepts(std::uint32_t source, std::uint16_t identification, Nanos now, bool& settled);

 private:
  static constexpr std::size_t kSenders = 256;  ///< a power of two; two may share one, and forget each other

  struct Number {
    std::uint16_t value = 0;
    Nanos seen = 0;
  };
  struct Sender {
    std::uint32_t address = 0;  ///< 0: none
    bool counts = false, doubted = false;
    Number last;   ///< if it counts
    Number doubt;  ///< that of the packet before, which was unlikely, if `doubted`
  };
  static bool follows(Number& last, std::uint16_t identification, Nanos now);

  std::array<Sender, kSenders> senders_;
};

}  // namespace uroce::udp
