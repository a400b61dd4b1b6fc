#include "control/session/neighbour_waiters.h"

#include <utility>

namespace uroce::control {

NeighbourWaiters::Id NeighbourWaiters::add(const NeighbourKey& key, Nanos deadline, Done done) {
  waiters_.emplace(++last_, Waiter{key, deadline, std::move(done)});
  of_key_[key].insert(last_);
  deadlines_.emplace(deadline, last_);
  return last_;
}

void NeighbourWaiters::cancel(Id id) {
  const auto waiter = waiters_.find(id);
  if (waiter == waiters_.end()) return;
  deadlines_.erase({waiter->second.deadline, id});
  const auto same = of_key_.find(waiter->second.key);
  same->second.erase(id);
  if (same->second.empty()) of_key_.erase(same);
  waiters_.erase(waiter);
}

std::vector<NeighbourKey> NeighbourWaiters::keys() const {
  std::vector<NeighbourKey> keys;
  for (const auto& [key, ids] : of_key_) keys.push_back(key);
  return keys;
}

bool NeighbourWaiters::complete(const std::map<NeighbourKey, Neighbour>& results, Nanos now) {
  std::map<Id, Neighbour> finished;  // in the order in which they began to wait
  bool all = true;
  const auto finish = [&](Id id, const Neighbour& neighbour) {
    all = finished.size() < kMost;
    if (all) finished.emplace(id, neighbour);
    return all;
  };
  for (const auto& [key, neighbour] : results) {
    const auto ids = of_key_.find(key);
    if (neighbour.resolution == net::Resolution::kPending || ids == of_key_.end()) continue;
    for (auto id = ids->second.begin(); all && id != ids->second.end(); ++id) finish(*id, neighbour);
  }
  for (auto due = deadlines_.begin(); all && due != deadlines_.end() && due->first <= now; ++due) {
    finish(due->second, {net::Resolution::kPending, wire::Mac{}});
  }
  for (const auto& [id, neighbour] : finished) {
    // An earlier completion may have cancelled this one.
    const auto waiter = waiters_.find(id);
    if (waiter == waiters_.end()) continue;
    const Done done = std::move(waiter->second.done);
    cancel(id);
    done(neighbour);
  }
  return all;
}

}  // namespace uroce::control
