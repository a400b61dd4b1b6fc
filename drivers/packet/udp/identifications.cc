#include "drivers/packet/udp/identifications.h"

#include <bit>

#include "drivers/packet/udp/icrc_delta.h"

namespace uroce::udp {

/// Whether the number is near `last`, which then moves to it, but not back.
bool Identifications::follows(Number& last, std::uint16_t identification, Nanos now) {
  const auto ahead = static_cast<std::uint16_t>(identification - last.value);
  const auto behind = static_cast<std::uint16_t>(last.value - identification);
  if (ahead <= kAhead + (now - last.seen) / kEach) {
    last = {identification, now};
    return true;
  }
  return behind <= kBehind;
}

bool Identifications::accepts(std::uint32_t source, std::uint16_t identification, Nanos now, bool& settled) {
  constexpr int kBits = std::countr_zero(kSenders);
  Sender& sender = senders_[source * 0x9e3779b1u >> (32 - kBits)];
  const bool in_row = identification < IcrcDelta::kIdentifications;
  settled = false;
  if (sender.address != source) {
    sender = {.address = source, .counts = !in_row, .last = {identification, now}, .doubt = {}};
    settled = in_row;
    return true;
  }
  if (sender.counts && follows(sender.last, identification, now)) {
    sender.doubted = false;
    return true;
  }
  const bool confirmed = sender.doubted && follows(sender.doubt, identification, now);
  if (in_row && (!sender.counts || confirmed)) {
    sender.counts = sender.doubted = false;
    settled = true;
    return true;
  }
  if (confirmed) {
    sender.counts = true;
    sender.last = sender.doubt;
    sender.doubted = false;
    return true;
  }
  sender.doubted = true;
  sender.doubt = {identification, now};
  return in_row;
}

}  // namespace uroce::udp
