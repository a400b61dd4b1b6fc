// Control requests and CM ids that wait for the link-layer address of a neighbour. The link worker signals when a
// neighbour has answered or was given up. Each waiter is completed once: then, or when its deadline passes.
//
// Call contract. The control thread only. A completion may add and cancel waiters.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/types.h"
#include "net/link_stack.h"

namespace uroce::control {

/// A destination as the link stack resolves it.
struct NeighbourKey {
  wire::Address destination;
  std::uint16_t vlan = 0;
  auto operator<=>(const NeighbourKey&) const = default;
};

/// What the link stack knows about it.
struct Neighbour {
  net::Resolution resolution{};
  wire::Mac mac{};  ///< with kResolved: of the next hop
};

class NeighbourWaiters {
 public:
  using Id = std::uint64_t;  ///< never 0
  /// Gets kResolved, kFailed or kNoRoute; kPending: the deadline has passed.
  using Done = std::function<void(const Neighbour&)>;

  Id add(const NeighbourKey& key, Nanos deadline, Done done);
  /// No effect if it is no longer waiting.
  void cancel(Id id);

  bool empty() const { return waiters_.empty(); }
  /// The destinations that waiters wait for, each once.
  std::vector<NeighbourKey> keys() const;
  Nanos next_deadline() const { return deadlines_.empty() ? kNever : deadlines_.begin()->first; }
  static constexpr std::size_t kMost = 256;  ///< completions in one call
  /// Completes waiters of keys that are not pending, and those whose deadline has passed. False: there are more of
  /// them, for the next call.
  bool complete(const std::map<NeighbourKey, Neighbour>& results, Nanos now);

 private:
  struct Waiter {
    NeighbourKey key;
    Nanos deadline = 0;
    Done done;
  };

  std::unordered_map<Id, Waiter> waiters_;
  std::map<NeighbourKey, std::set<Id>> of_key_;
  std::set<std::pair<Nanos, Id>> deadlines_;
  Id last_ = 0;
};

}  // namespace uroce::control
