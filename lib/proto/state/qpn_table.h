// QPN to slot, by open addressing. At most half full, so that a lookup usually reads one cache line.
#pragma once

#include <bit>
#include <cstdint>
#include <memory_resource>
#include <vector>

#include "base/types.h"

namespace uroce::proto {

class QpnTable {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  explicit QpnTable(std::uint32_t capacity, std::pmr::memory_resource* memory = std::pmr::get_default_resource())
      : shift_(32 - static_cast<unsigned>(std::bit_width(capacity | 7u)) - 1),
        entries_(std::size_t{1} << (32 - shift_), memory) {}

  std::uint32_t find(Qpn qpn) const {
    for (std::uint32_t i = home(qpn.value);; i = (i + 1) & mask()) {
      const Entry& entry = entries_[i];
      if (entry.slot == kNone) return kNone;
      if (entry.qpn == qpn.value) return entry.slot;
    }
  }

  /// find() will be called for this QPN soon.
  void prefetch(Qpn qpn) const { __builtin_prefetch(&entries_[home(qpn.value)]); }

  /// The QPN must not be in the table.
  void insert(Qpn qpn, std::uint32_t slot) {
    std::uint32_t i = home(qpn.value);
    while (entries_[i].slot != kNone) i = (i + 1) & mask();
    entries_[i] = {qpn.value, slot};
  }

  void erase(Qpn qpn) {
    std::uint32_t hole = home(qpn.value);
    while (entries_[hole].qpn != qpn.value) hole = (hole + 1) & mask();
    // Later entries that were displaced past the hole move back into it.
    for (std::uint32_t i = (hole + 1) & mask(); entries_[i].slot != kNone; i = (i + 1) & mask()) {
      const std::uint32_t from_home = (i - home(entries_[i].qpn)) & mask();
      if (from_home < ((i - hole) & mask())) continue;
      entries_[hole] = entries_[i];
      hole = i;
    }
    entries_[hole].slot = kNone;
  }

 private:
  struct Entry {
    std::uint32_t qpn = 0;
    std::uint32_t slot = kNone;
  };

  std::uint32_t mask() const { return static_cast<std::uint32_t>(entries_.size()) - 1; }
  std::uint32_t home(std::uint32_t qpn) const { return (qpn * 0x9e3779b1u) >> shift_; }

  unsigned shift_;
  std::pmr::vector<Entry> entries_;
};

}  // namespace uroce::proto
