// Timers named by index, one deadline each, in a hierarchical wheel: eight levels of 64 slots, a level's slot as
// wide as the level below it. Setting, cancelling and firing are O(1); nothing is allocated after construction.
//
// Contract. advance(now, fire) calls fire(index) for each timer whose deadline has come, none before it and none
// more than a tick (1.024 us) after it; fire may set and cancel any timer. Time never decreases.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <vector>

#include "base/types.h"

namespace uroce::base {

class TimerWheel {
 public:
  explicit TimerWheel(std::uint32_t capacity, std::pmr::memory_resource* memory = std::pmr::get_default_resource())
      : nodes_(capacity, memory) {
    for (std::uint32_t& head : heads_) head = kNone;
  }

  /// Replaces the timer's deadline.
  void set(std::uint32_t index, Nanos deadline) {
    cancel(index);
    Node& node = nodes_[index];
    node.deadline = deadline;
    node.tick = deadline >= kNever - kTickMask ? kNever >> kTickBits : (deadline + kTickMask) >> kTickBits;
    insert(index);
    ++armed_;
  }

  void cancel(std::uint32_t index) {
    if (nodes_[index].list == kIdle) return;
    unlink(index);
    --armed_;
  }

  bool is_set(std::uint32_t index) const { return nodes_[index].list != kIdle; }
  Nanos deadline(std::uint32_t index) const { return is_set(index) ? nodes_[index].deadline : kNever; }
  std::uint32_t armed() const { return armed_; }

  /// When advance() must be called next: not after the earliest deadline, and at most seven times before it
  /// (distant timers first move to a finer level). kNever: no timer is set.
  Nanos next_timeout() const {
    const Step step = next_step();
    return step.level == kLevels ? kNever : step.tick << kTickBits;
  }

  template <class Fire>
  void advance(Nanos now, Fire&& fire) {
    const std::uint64_t target = now >> kTickBits;
    while (armed_ != 0) {
      const Step step = next_step();
      if (step.level == kLevels || step.tick > target) break;
      if (step.tick > elapsed_) elapsed_ = step.tick;
      // The slot's timers move to a separate list first: fire() may set a timer that lands in the same slot.
      const std::uint32_t list = step.level * kSlots + step.slot;
      heads_[kFiring] = heads_[list];
      heads_[list] = kNone;
      occupied_[step.level] &= ~(std::uint64_t{1} << step.slot);
      for (std::uint32_t i = heads_[kFiring]; i != kNone; i = nodes_[i].next) nodes_[i].list = kFiring;
      while (heads_[kFiring] != kNone) {
        const std::uint32_t index = heads_[kFiring];
        unlink(index);
        if (nodes_[index].tick > target) {
          insert(index);
          continue;
        }
        --armed_;
        fire(index);
      }
    }
    if (target > elapsed_) elapsed_ = target;
  }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  static constexpr unsigned kTickBits = 10;
  static constexpr Nanos kTickMask = (Nanos{1} << kTickBits) - 1;
  static constexpr unsigned kSlotBits = 6;
  static constexpr std::uint32_t kSlots = 1u << kSlotBits;
  static constexpr std::uint32_t kLevels = 9;  // 54 bits: all bits of Nanos above the tick
  static constexpr std::uint32_t kFiring = kLevels * kSlots;
  static constexpr std::uint16_t kIdle = 0xffff;

  struct Node {
    std::uint64_t tick = 0;  // deadline, rounded up
    Nanos deadline = 0;
    std::uint32_t next = kNone, prev = kNone;
    std::uint16_t list = kIdle;
  };
  struct Step {
    std::uint32_t level, slot;
    std::uint64_t tick;
  };

  void insert(std::uint32_t index) {
    Node& node = nodes_[index];
    const std::uint64_t tick = node.tick > elapsed_ ? node.tick : elapsed_;
    // The level is where the deadline and the present first differ.
    const auto bits = static_cast<unsigned>(std::bit_width((tick ^ elapsed_) | (kSlots - 1)));
    const std::uint32_t level = (bits - 1) / kSlotBits;
    const auto slot = static_cast<std::uint32_t>(tick >> (level * kSlotBits)) & (kSlots - 1);
    link(index, level * kSlots + slot);
    occupied_[level] |= std::uint64_t{1} << slot;
  }

  void link(std::uint32_t index, std::uint32_t list) {
    Node& node = nodes_[index];
    node.list = static_cast<std::uint16_t>(list);
    node.prev = kNone;
    node.next = heads_[list];
    if (node.next != kNone) nodes_[node.next].prev = index;
    heads_[list] = index;
  }

  void unlink(std::uint32_t index) {
    Node& node = nodes_[index];
    if (node.next != kNone) nodes_[node.next].prev = node.prev;
    if (node.prev != kNone) {
      nodes_[node.prev].next = node.next;
    } else {
      heads_[node.list] = node.next;
      if (node.next == kNone && node.list != kFiring) {
        occupied_[node.list / kSlots] &= ~(std::uint64_t{1} << (node.list % kSlots));
      }
    }
    node.list = kIdle;
  }

  /// The earliest slot that holds timers. Lower levels come first: all future slots of a level lie within one slot
  /// of the level above.
  Step next_step() const {
    for (std::uint32_t level = 0; level < kLevels; ++level) {
      if (occupied_[level] == 0) continue;
      const unsigned shift = level * kSlotBits;
      const auto now = static_cast<std::uint32_t>(elapsed_ >> shift) & (kSlots - 1);
      const auto ahead =
          static_cast<std::uint32_t>(std::countr_zero(std::rotr(occupied_[level], static_cast<int>(now))));
      return {level, (now + ahead) & (kSlots - 1), ((elapsed_ >> shift) + ahead) << shift};
    }
    return {kLevels, 0, 0};
  }

  std::pmr::vector<Node> nodes_;
  std::uint32_t heads_[kLevels * kSlots + 1];
  std::uint64_t occupied_[kLevels] = {};
  std::uint64_t elapsed_ = 0;
  std::uint32_t armed_ = 0;
};

}  // namespace uroce::base
