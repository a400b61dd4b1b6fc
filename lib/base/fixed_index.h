// From a 64-bit hash to a slot: open addressing with linear probing, fixed capacity, no tombstones (erase shifts
// entries back). The caller compares keys, so two slots may share a hash.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace uroce::base {

/// Mixes so that neighbouring numbers land far apart (splitmix64's finaliser).
constexpr std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

class FixedIndex {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  /// Room for `capacity` slots at a load of at most one half.
  explicit FixedIndex(std::size_t capacity) : cells_(std::bit_ceil(2 * capacity + 1)) {}

  void insert(std::uint64_t hash, std::uint32_t slot) {
    std::size_t at = home(hash);
    while (cells_[at].slot != kNone) at = next(at);
    cells_[at] = {hash, slot};
  }

  /// First slot with this hash for which `matches(slot)` holds, or kNone.
  template <class Matches>
  std::uint32_t find(std::uint64_t hash, Matches&& matches) const {
    for (std::size_t at = home(hash); cells_[at].slot != kNone; at = next(at)) {
      if (cells_[at].hash == hash && matches(cells_[at].slot)) return cells_[at].slot;
    }
    return kNone;
  }

  bool erase(std::uint64_t hash, std::uint32_t slot) {
    std::size_t hole = home(hash);
    while (cells_[hole].slot != kNone && !(cells_[hole].hash == hash && cells_[hole].slot == slot))
      hole = next(hole);
    if (cells_[hole].slot == kNone) return false;
    for (std::size_t at = next(hole); cells_[at].slot != kNone; at = next(at)) {
      // A cell may move into the hole unless its home lies cyclically in (hole, at].
      const std::size_t from_home = (at - home(cells_[at].hash)) & (cells_.size() - 1);
      if (from_home >= ((at - hole) & (cells_.size() - 1))) {
        cells_[hole] = cells_[at];
        hole = at;
      }
    }
    cells_[hole] = {};
    return true;
  }

 private:
  struct Cell {
    std::uint64_t hash = 0;
    std::uint32_t slot = kNone;
  };
  std::size_t home(std::uint64_t hash) const { return mix(hash) & (cells_.size() - 1); }
  std::size_t next(std::size_t at) const { return (at + 1) & (cells_.size() - 1); }

  std::vector<Cell> cells_;
};

}  // namespace uroce::base
