// Where a device does otherwise than the model: by name, so that the model stays strict on all other devices.
// docs/rxe-differences.md has a row for each name; tests/interop/linux_sequences.py compares the two.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace sequences {

/// `Name` is an enumeration that ends with kCount.
template <class Name>
class Differences {
 public:
  struct Row {
    Name name;
    const char* text;
  };
  using Rows = std::array<Row, static_cast<std::size_t>(Name::kCount)>;

  /// Whether the rows are in the order of their names.
  static constexpr bool in_order(const Rows& rows) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].name != static_cast<Name>(i)) return false;
    }
    return true;
  }

  explicit Differences(const Rows& rows) : rows_(rows) {}
  /// The device of this run is the one that differs.
  void apply() { applies_ = true; }
  /// Whether the device differs so. Asked where it matters only: the answers are counted.
  bool operator()(Name name) {
    if (applies_) ++uses_[static_cast<std::size_t>(name)];
    return applies_;
  }
  void print() const {
    for (std::size_t i = 0; applies_ && i < rows_.size(); ++i) {
      std::printf("difference %s: %llu\n", rows_[i].text, static_cast<unsigned long long>(uses_[i]));
    }
  }

 private:
  const Rows& rows_;
  std::array<std::uint64_t, static_cast<std::size_t>(Name::kCount)> uses_{};
  bool applies_ = false;
};

}  // namespace sequences
