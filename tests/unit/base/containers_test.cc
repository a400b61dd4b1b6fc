// FixedIndex and DeadlineHeap against the standard containers.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "base/deadline_heap.h"
#include "base/fixed_index.h"

namespace uroce::base {
namespace {

TEST(FixedIndex, AgreesWithAMultimapUnderRandomWork) {
  constexpr std::uint32_t kSlots = 64;
  FixedIndex index(kSlots);
  std::map<std::uint32_t, std::uint64_t> oracle;  // slot -> hash
  std::mt19937 random(1);
  for (int step = 0; step < 200'000; ++step) {
    const std::uint32_t slot = random() % kSlots;
    const std::uint64_t hash = random() % 24;  // few, so that many slots share one
    if (const auto known = oracle.find(slot); known != oracle.end()) {
      ASSERT_TRUE(index.erase(known->second, slot));
      ASSERT_FALSE(index.erase(known->second, slot));
      oracle.erase(known);
    } else {
      index.insert(hash, slot);
      oracle[slot] = hash;
    }
    const std::uint32_t probe = random() % kSlots;
    const auto known = oracle.find(probe);
    const std::uint64_t wanted = known != oracle.end() ? known->second : hash;
    const std::uint32_t found = index.find(wanted, [&](std::uint32_t s) { return s == probe; });
    ASSERT_EQ(found, known != oracle.end() ? probe : FixedIndex::kNone);
  }
}

TEST(DeadlineHeap, PopsInOrderOfDeadlineUnderRandomWork) {
  constexpr std::uint32_t kSlots = 50;
  DeadlineHeap heap(kSlots);
  std::map<std::uint32_t, Nanos> oracle;
  std::mt19937 random(2);
  for (int step = 0; step < 100'000; ++step) {
    const std::uint32_t slot = random() % kSlots;
    switch (random() % 3) {
      case 0: heap.set(slot, oracle[slot] = random() % 1000); break;
      case 1:
        heap.clear(slot);
        oracle.erase(slot);
        break;
      default: {
        const Nanos now = random() % 1000;
        std::uint32_t popped;
        if (heap.pop_due(now, popped)) {
          for (const auto& [other, deadline] : oracle) ASSERT_LE(oracle.at(popped), deadline) << other;
          ASSERT_LE(oracle.at(popped), now);
          oracle.erase(popped);
        } else {
          for (const auto& [other, deadline] : oracle) ASSERT_GT(deadline, now) << other;
        }
      }
    }
    Nanos earliest = kNever;
    for (const auto& [other, deadline] : oracle) earliest = std::min(earliest, deadline);
    ASSERT_EQ(heap.next(), earliest);
  }
}

}  // namespace
}  // namespace uroce::base
