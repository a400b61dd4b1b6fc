// One deadline for each of a fixed number of slots, earliest first: a binary heap that records each slot's
// position. set, clear and pop_due are O(log n). For control-path timers; the data path uses the timer wheel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/types.h"

namespace uroce::base {

class DeadlineHeap {
 public:
  explicit DeadlineHeap(std::size_t slots) : place_(slots, kAbsent) { heap_.reserve(slots); }

  void set(std::uint32_t slot, Nanos deadline) {
    if (place_[slot] == kAbsent) {
      place_[slot] = static_cast<std::uint32_t>(heap_.size());
      heap_.push_back({deadline, slot});
    } else {
      heap_[place_[slot]].deadline = deadline;
    }
    sift(place_[slot]);
  }

  void clear(std::uint32_t slot) {
    const std::uint32_t at = place_[slot];
    if (at == kAbsent) return;
    swap(at, static_cast<std::uint32_t>(heap_.size() - 1));
    heap_.pop_back();
    place_[slot] = kAbsent;
    if (at < heap_.size()) sift(at);
  }

  /// kNever: no deadline is set.
  Nanos next() const { return heap_.empty() ? kNever : heap_[0].deadline; }

  /// Removes a slot whose deadline is not after `now`; false: there is none.
  bool pop_due(Nanos now, std::uint32_t& slot) {
    if (next() > now || heap_.empty()) return false;
    slot = heap_[0].slot;
    clear(slot);
    return true;
  }

 private:
  static constexpr std::uint32_t kAbsent = ~std::uint32_t{0};
  struct Entry {
    Nanos deadline;
    std::uint32_t slot;
  };

  void swap(std::uint32_t a, std::uint32_t b) {
    std::swap(heap_[a], heap_[b]);
    place_[heap_[a].slot] = a;
    place_[heap_[b].slot] = b;
  }

  void sift(std::uint32_t at) {
    while (at > 0 && heap_[at].deadline < heap_[(at - 1) / 2].deadline) {
      swap(at, (at - 1) / 2);
      at = (at - 1) / 2;
    }
    for (;;) {
      std::uint32_t least = at;
      for (std::uint32_t child = 2 * at + 1; child <= 2 * at + 2 && child < heap_.size(); ++child) {
        if (heap_[child].deadline < heap_[least].deadline) least = child;
      }
      if (least == at) return;
      swap(at, least);
      at = least;
    }
  }

  std::vector<Entry> heap_;
  std::vector<std::uint32_t> place_;
};

}  // namespace uroce::base
