// The number of registrations that use each page of a file: an interval map from file offsets to counts.
#pragma once

#include <cstdint>
#include <map>

#include "page_sharing/page_arena.h"

namespace uroce::page_sharing {

class PageUsers {
 public:
  struct Run {
    std::uint64_t end;
    std::uint32_t users;
  };
  using Runs = std::map<std::uint64_t, Run, std::less<>, ArenaAllocator<std::pair<const std::uint64_t, Run>>>;

  explicit PageUsers(Arena& arena) : arena_(&arena), runs_(ArenaAllocator<Runs::value_type>(&arena)) {}

  /// Adds one user to [start, end). False: out of memory, nothing has changed.
  bool add(std::uint64_t start, std::uint64_t end) {
    std::size_t overlapping = 0;
    for (auto it = first_overlapping(start); it != runs_.end() && it->first < end; ++it) ++overlapping;
    if (!arena_->reserve(2 * overlapping + 3)) return false;
    split(start);
    split(end);
    std::uint64_t at = start;
    auto it = runs_.lower_bound(start);
    while (at < end) {
      if (it == runs_.end() || it->first > at) {
        const std::uint64_t stop = it == runs_.end() || it->first > end ? end : it->first;
        it = std::next(runs_.emplace_hint(it, at, Run{stop, 1}));
        at = stop;
      } else {
        ++it->second.users;
        at = it->second.end;
        ++it;
      }
    }
    merge(start, end);
    return true;
  }

  /// Removes one user from [start, end) and calls unused(start, end) for each run that has none left. `unused` must
  /// not access this map. False: out of memory, nothing has changed.
  template <class F>
  bool remove(std::uint64_t start, std::uint64_t end, F&& unused) {
    if (!arena_->reserve(3)) return false;
    split(start);
    split(end);
    for (auto it = runs_.lower_bound(start); it != runs_.end() && it->first < end;) {
      if (--it->second.users > 0) {
        ++it;
        continue;
      }
      unused(it->first, it->second.end);
      it = runs_.erase(it);
    }
    merge(start, end);
    return true;
  }

  bool any(std::uint64_t start, std::uint64_t end) const {
    auto it = first_overlapping(start);
    return it != runs_.end() && it->first < end;
  }

  /// The end of the run without users that begins at `start`, at most `limit`.
  std::uint64_t unused_until(std::uint64_t start, std::uint64_t limit) const {
    auto it = first_overlapping(start);
    if (it == runs_.end() || it->first >= limit) return limit;
    return it->first > start ? it->first : start;
  }
  /// The end of the run with users that contains `at`; `at` if there is none.
  std::uint64_t used_until(std::uint64_t at) const {
    auto it = first_overlapping(at);
    return it != runs_.end() && it->first <= at ? it->second.end : at;
  }

  bool empty() const { return runs_.empty(); }
  void clear() { runs_.clear(); }

 private:
  Runs::const_iterator first_overlapping(std::uint64_t at) const {
    auto it = runs_.upper_bound(at);
    if (it != runs_.begin() && std::prev(it)->second.end > at) --it;
    return it;
  }

  void split(std::uint64_t at) {
    auto it = runs_.upper_bound(at);
    if (it == runs_.begin()) return;
    --it;
    if (it->first >= at || it->second.end <= at) return;
    const Run upper = it->second;
    it->second.end = at;
    runs_.emplace_hint(std::next(it), at, upper);
  }

  void merge(std::uint64_t start, std::uint64_t end) {
    auto it = runs_.lower_bound(start);
    if (it != runs_.begin()) --it;
    while (it != runs_.end() && it->first <= end) {
      auto next = std::next(it);
      if (next == runs_.end() || next->first > end) return;
      if (it->second.end == next->first && it->second.users == next->second.users) {
        it->second.end = next->second.end;
        runs_.erase(next);
      } else {
        it = next;
      }
    }
  }

  Arena* arena_;
  Runs runs_;
};

}  // namespace uroce::page_sharing
