#include "net/neighbour_table.h"

#include <algorithm>
#include <cstring>

namespace uroce::net {

std::size_t NeighbourTable::Hash::operator()(const wire::Address& address) const {
  std::uint64_t high, low;
  std::memcpy(&high, address.bytes.data(), 8);
  std::memcpy(&low, address.bytes.data() + 8, 8);
  std::uint64_t x = (high ^ 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u ^ low;
  x = (x ^ x >> 30) * 0x94d049bb133111ebu;
  return static_cast<std::size_t>(x ^ x >> 31);
}

NeighbourTable::NeighbourTable(std::uint32_t capacity) : capacity_(std::max(capacity, 1u)) {
  entries_.reserve(capacity_);
}

Neighbour* NeighbourTable::find(const wire::Address& address) {
  const auto it = entries_.find(address);
  return it == entries_.end() ? nullptr : &it->second;
}

Neighbour& NeighbourTable::add(const wire::Address& address, Nanos now) {
  if (Neighbour* known = find(address)) return *known;
  if (entries_.size() >= capacity_) evict();
  Neighbour& fresh = entries_[address];
  fresh.address = address;
  fresh.used_at = now;
  return fresh;
}

void NeighbourTable::erase(const wire::Address& address) {
  unschedule(address);
  entries_.erase(address);
}

void NeighbourTable::evict() {
  const auto older = [](const auto& a, const auto& b) {
    if (a.second.wanted != b.second.wanted) return !a.second.wanted;
    return a.second.used_at < b.second.used_at;
  };
  const auto victim = std::min_element(entries_.begin(), entries_.end(), older);
  if (victim == entries_.end()) return;
  unschedule(victim->first);
  entries_.erase(victim);
}

void NeighbourTable::schedule(Neighbour& neighbour, Nanos deadline) {
  const bool was = neighbour.deadline != kNever;
  neighbour.deadline = deadline;
  if (deadline == kNever) return unschedule(neighbour.address);
  if (!was) scheduled_.push_back(neighbour.address);
}

void NeighbourTable::unschedule(const wire::Address& address) {
  const auto it = std::find(scheduled_.begin(), scheduled_.end(), address);
  if (it == scheduled_.end()) return;
  *it = scheduled_.back();
  scheduled_.pop_back();
}

Neighbour* NeighbourTable::due(Nanos now) {
  for (const wire::Address& address : scheduled_) {
    Neighbour* neighbour = find(address);
    if (neighbour->deadline > now) continue;
    neighbour->deadline = kNever;
    unschedule(neighbour->address);
    return neighbour;
  }
  return nullptr;
}

Nanos NeighbourTable::next_deadline() const {
  Nanos next = kNever;
  for (const wire::Address& address : scheduled_) next = std::min(next, entries_.find(address)->second.deadline);
  return next;
}

}  // namespace uroce::net
