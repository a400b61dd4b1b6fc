// A virtual network: frames go in, and come out later, twice, elsewhere in the order, damaged or not at all, as a
// seed decides. Virtual time only. It never harms the same packet (by destination QPN, PSN and kind) more than
// `max_losses` times, so that a QP with retry_cnt 7 must always get through.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/types.h"
#include "tests/sim/random.h"

namespace uroce::sim {

struct NetworkSettings {
  double drop = 0, duplicate = 0, reorder = 0, corrupt = 0;
  Nanos latency = 2 * kMicrosecond;      ///< one way
  Nanos jitter = 0;                      ///< added at random, in order
  Nanos reorder_by = 50 * kMicrosecond;  ///< at most, for a packet that is delayed out of order
  std::uint32_t max_losses = 2;

  bool harmless() const { return drop == 0 && duplicate == 0 && reorder == 0 && corrupt == 0; }
};

/// Short trips; without harm with that probability.
NetworkSettings draw_short_network(Random& random, double harmless);

struct Arrival {
  Nanos at = 0;
  std::uint64_t order = 0;
  std::uint32_t to = 0;  ///< host
  std::uint32_t slot = 0;
  bool damaged = false;
};

class Network {
 public:
  Network(const NetworkSettings& settings, std::uint64_t seed) : settings_(settings), random_(seed) {}

  /// Takes a copy of a frame for `to`.
  void send(std::uint32_t to, std::span<const std::byte> frame, Nanos now);
  /// kNever: nothing is under way.
  Nanos next_arrival() const { return queue_.empty() ? kNever : queue_.front().at; }
  /// Hands out one frame that is due; false: none is.
  bool receive(Nanos now, const std::function<void(const Arrival&, std::span<const std::byte>)>& take);
  /// From now on every frame is lost (those under way too).
  void die();
  bool dead() const { return dead_; }
  /// Forgets frames under way to a QP: stale packets of an earlier connection are not part of any scenario.
  void forget(Qpn qpn);
  void heal() { settings_.drop = settings_.duplicate = settings_.reorder = settings_.corrupt = 0; }

  std::uint64_t harmed() const { return harmed_; }
  std::uint64_t damaged() const { return damaged_; }
  std::size_t under_way() const { return queue_.size(); }

 private:
  struct Later {
    bool operator()(const Arrival& a, const Arrival& b) const {
      return a.at != b.at ? a.at > b.at : a.order > b.order;
    }
  };
  bool may_harm(std::uint32_t to, std::span<const std::byte> frame);
  void enqueue(std::uint32_t to, std::span<const std::byte> frame, Nanos at, bool damage);
  void damage(std::vector<std::byte>& frame);

  NetworkSettings settings_;
  Random random_;
  std::vector<Arrival> queue_;  // a heap, by time and order
  std::vector<std::vector<std::byte>> slots_;
  std::vector<std::uint32_t> free_slots_;
  std::unordered_map<std::uint64_t, std::uint32_t> harm_;
  Nanos last_in_order_[4] = {};
  std::uint64_t order_ = 0;
  std::uint64_t harmed_ = 0, damaged_ = 0;
  bool dead_ = false;
};

/// Destination QPN of a frame; ~0 when it is too short.
std::uint32_t dest_qpn_of(std::span<const std::byte> frame);
/// Whether the frame names its payload (base::kByReference): it has no ICRC. The network may lose, repeat and
/// overtake it, but not damage it, since it never leaves its process.
bool is_by_reference(std::span<const std::byte> frame);
/// Whether the UDP header is there and names the port of RoCEv2.
bool is_roce(std::span<const std::byte> frame);
/// Where the BTH starts, by the Ethernet and IP headers; frame.size() when it has none.
std::size_t bth_offset(std::span<const std::byte> frame);

}  // namespace uroce::sim
