#include "tests/sim/switch.h"

#include <algorithm>

namespace uroce::sim {
namespace {

constexpr std::size_t kWireBytes = 24;  ///< of each frame: FCS, preamble, gap
constexpr std::size_t kTypeOfService = 15;

}  // namespace

void Switch::send(std::uint32_t from, std::uint32_t to, std::span<const std::byte> frame, Nanos now) {
  Nanos& free = up_free_[from];
  free = std::max(free, now) + time_for(frame.size() + kWireBytes);
  if (settings_.lost_in_million != 0 && random_.below(1'000'000) < settings_.lost_in_million) {
    ++lost_;
    return;
  }
  add(free + settings_.latency, {.to = to, .in_switch = true, .frame = {frame.begin(), frame.end()}});
}

void Switch::forward(Nanos at, Event event) {
  Nanos& free = down_free_[event.to];
  const std::size_t waiting = free > at ? (free - at) * settings_.gbps / 8 : 0;
  if (waiting + event.frame.size() > settings_.port_bytes) {
    ++overflowed_;
    return;
  }
  std::byte& service = event.frame[kTypeOfService];
  if (waiting > settings_.mark_bytes && (service & std::byte{3}) != std::byte{0}) {
    service |= std::byte{3};  // the checksum is the port's to check
  }
  free = std::max(free, at) + time_for(event.frame.size() + kWireBytes);
  event.in_switch = false;
  add(free + settings_.latency, std::move(event));
}

void Switch::receive(Nanos now, const std::function<void(std::uint32_t, std::span<const std::byte>)>& take) {
  while (next_moment() <= now) {
    const Nanos at = next_moment();
    Event event = std::move(events_.extract(events_.begin()).mapped());
    if (event.in_switch) {
      forward(at, std::move(event));
    } else {
      take(event.to, event.frame);
    }
  }
}

}  // namespace uroce::sim
