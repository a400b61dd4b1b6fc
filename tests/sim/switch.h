// A network with a bottleneck: each host has a cable of the same rate to one switch, whose ports to the hosts have
// little memory for frames that wait. What does not fit is lost; beyond a threshold, frames are marked (RFC 3168).
// A share of all frames can be lost on their way to the switch, drawn by a seed. Virtual time only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/types.h"
#include "tests/sim/random.h"

namespace uroce::sim {

struct SwitchSettings {
  std::uint32_t gbps = 100;            ///< of each cable
  Nanos latency = 2 * kMicrosecond;    ///< of each cable: a round trip takes four of them
  std::size_t port_bytes = 1'000'000;  ///< that wait for one host at most
  std::size_t mark_bytes = SIZE_MAX;   ///< that wait where marks begin
  std::uint32_t lost_in_million = 0;   ///< frames, wherever they go
};

class Switch {
 public:
  Switch(const SwitchSettings& settings, std::uint32_t hosts, std::uint64_t seed)
      : settings_(settings), random_(seed), up_free_(hosts), down_free_(hosts) {}

  /// Takes a copy of an IPv4 frame.
  void send(std::uint32_t from, std::uint32_t to, std::span<const std::byte> frame, Nanos now);
  /// When receive() has something to do; kNever: nothing is under way.
  Nanos next_moment() const { return events_.empty() ? kNever : events_.begin()->first.first; }
  /// Hands out the frames that have arrived.
  void receive(Nanos now, const std::function<void(std::uint32_t to, std::span<const std::byte>)>& take);

  /// Frames that found the memory full.
  std::uint64_t overflowed() const { return overflowed_; }
  /// Frames lost by chance.
  std::uint64_t lost() const { return lost_; }

 private:
  struct Event {
    std::uint32_t to = 0;
    bool in_switch = false;  ///< or at the host
    std::vector<std::byte> frame;
  };
  Nanos time_for(std::size_t bytes) const { return Nanos{bytes} * 8 / settings_.gbps; }
  void add(Nanos at, Event event) { events_.emplace(std::pair(at, order_++), std::move(event)); }
  void forward(Nanos at, Event event);

  SwitchSettings settings_;
  Random random_;
  std::vector<Nanos> up_free_, down_free_;  ///< by host: when the cable has sent what waits
  std::map<std::pair<Nanos, std::uint64_t>, Event> events_;
  std::uint64_t order_ = 0, overflowed_ = 0, lost_ = 0;
};

}  // namespace uroce::sim
