// What a counter means, in a table next to the struct that holds it. `urocectl metrics` and docs/metrics.md are
// made from these tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace uroce {

enum class CounterKind : std::uint8_t {
  kTotal,     ///< counts up
  kDuration,  ///< counts up, in ns
  kLongest,   ///< the longest duration so far, in ns
  kLast,      ///< when something happened last, in ns of the monotonic clock; 0: never
};

/// One field of Struct, which consists of std::uint64_t.
template <class Struct>
struct CounterInfo {
  std::string_view name;  ///< a name that ends in "_bytes" counts bytes
  std::uint64_t Struct::*value;
  std::string_view help;  ///< one sentence
  CounterKind kind = CounterKind::kTotal;
};

/// Whether the rows are all fields of Struct, except `others` that have another table: each row has a field and a
/// name of its own, and says something. For a static_assert next to the table.
template <class Struct, std::size_t kRows>
constexpr bool describes_all(const CounterInfo<Struct> (&table)[kRows], std::size_t others = 0) {
  if (sizeof(Struct) != (kRows + others) * sizeof(std::uint64_t)) return false;
  for (std::size_t i = 0; i < kRows; ++i) {
    if (table[i].name.empty() || table[i].help.empty() || table[i].help.back() != '.') return false;
    for (std::size_t j = 0; j < i; ++j) {
      if (table[i].value == table[j].value || table[i].name == table[j].name) return false;
    }
  }
  return true;
}

}  // namespace uroce
