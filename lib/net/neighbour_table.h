// IP address -> MAC address, bounded. Sans-IO.
//
// An entry is pending (a request was sent, no answer yet), reachable or failed. LinkStack sends the requests; this
// class keeps the states:
//   find            the entry of an address
//   add             a new entry; a full table evicts the least recently used one, first of those that were never
//                   resolved from here
//   due             the next pending or failed entry whose time has come
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/types.h"
#include "wire/address.h"

namespace uroce::net {

struct Neighbour {
  enum class State : std::uint8_t { kPending, kReachable, kFailed };

  wire::Address address;
  wire::Mac mac{};
  State state = State::kPending;
  bool wanted = false;     ///< created by resolve(); otherwise by a neighbour's request
  std::uint8_t tries = 0;  ///< requests sent since the last answer
  Nanos confirmed_at = 0;  ///< last answer
  Nanos used_at = 0;
  Nanos deadline = kNever;  ///< pending or probing: next try; failed: end of the pause
};

class NeighbourTable {
 public:
  explicit NeighbourTable(std::uint32_t capacity);

  Neighbour* find(const wire::Address& address);
  Neighbour& add(const wire::Address& address, Nanos now);
  void erase(const wire::Address& address);

  /// Sets the deadline of an entry; kNever: none.
  void schedule(Neighbour& neighbour, Nanos deadline);
  /// Removes from the schedule and returns an entry whose deadline is not after `now`; nullptr: none.
  Neighbour* due(Nanos now);
  Nanos next_deadline() const;

  bool full() const { return entries_.size() >= capacity_; }
  std::size_t size() const { return entries_.size(); }
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const auto& [address, neighbour] : entries_) visit(neighbour);
  }

 private:
  struct Hash {
    std::size_t operator()(const wire::Address& address) const;
  };
  void evict();
  void unschedule(const wire::Address& address);

  std::uint32_t capacity_;
  std::unordered_map<wire::Address, Neighbour, Hash> entries_;
  std::vector<wire::Address> scheduled_;  // few: only entries with requests in progress
};

}  // namespace uroce::net
