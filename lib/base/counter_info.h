// What a counter means, in a table next to the struct that holds it. `urocectl metrics` and docs/metrics.md are
// made from these tables.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/types.h"

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

/// Adds what one thread has counted to the sum over several.
template <class Struct, std::size_t kRows>
void add_up(const CounterInfo<Struct> (&table)[kRows], Struct& sum, const Struct& more) {
  for (const CounterInfo<Struct>& row : table) {
    std::uint64_t& value = sum.*row.value;
    const bool counts_up = row.kind == CounterKind::kTotal || row.kind == CounterKind::kDuration;
    value = counts_up ? value + more.*row.value : std::max(value, more.*row.value);
  }
}

/// As `urocectl stat` names it: durations in us, and for how many ms something has not happened.
inline std::string stat_name(std::string_view name, CounterKind kind) {
  std::string text(name);
  if (kind == CounterKind::kDuration || kind == CounterKind::kLongest) text += "_us";
  if (kind == CounterKind::kLast) text += "_ms_ago";
  return text;
}
/// As `urocectl stat` shows it at the time `now`.
inline std::uint64_t stat_value(std::uint64_t value, CounterKind kind, Nanos now) {
  switch (kind) {
    case CounterKind::kTotal: return value;
    case CounterKind::kDuration:
    case CounterKind::kLongest: return value / kMicrosecond;
    case CounterKind::kLast: return value == 0 ? 0 : time_since(value, now) / kMillisecond;
  }
  return value;
}

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
