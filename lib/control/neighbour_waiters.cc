#include "control/neighbour_waiters.h"

#include <algorithm>
#include <utility>

namespace uroce::daemon {

NeighbourWaiters::Id NeighbourWaiters::add(const NeighbourKey& key, Nanos deadline, Done done) {
  waiters_.emplace(++last_, Waiter{key, deadline, std::move(done)});
  deadlines_.emplace(deadline, last_);
  return last_;
}

void NeighbourWaiters::cancel(Id id) {
  const auto waiter = waiters_.find(id);
  if (waiter == waiters_.end()) return;
  deadlines_.erase({waiter->second.deadline, id});
  waiters_.erase(waiter);
}

std::vector<NeighbourKey> NeighbourWaiters::keys() const {
  std::vector<NeighbourKey> keys;
  for (const auto& [id, waiter] : waiters_) keys.push_back(waiter.key);
  std::ranges::sort(keys);
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

void NeighbourWaiters::complete(const std::map<NeighbourKey, Neighbour>& results, Nanos now) {
  std::map<Id, Neighbour> finished;  // in the order in which they began to wait
  for (const auto& [id, waiter] : waiters_) {
    const auto result = results.find(waiter.key);
    const Neighbour neighbour =
        result != results.end() ? result->second : Neighbour{net::Resolution::kPending, wire::Mac{}};
    if (neighbour.resolution != net::Resolution::kPending || now >= waiter.deadline) finished[id] = neighbour;
  }
  for (const auto& [id, neighbour] : finished) {
    // An earlier completion may have cancelled this one.
    const auto waiter = waiters_.find(id);
    if (waiter == waiters_.end()) continue;
    const Done done = std::move(waiter->second.done);
    cancel(id);
    done(neighbour);
  }
}

}  // namespace uroce::daemon
