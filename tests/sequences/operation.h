// The operations that sequences consist of, and how a seed draws them. An operation names its objects by their
// places in tables; one whose objects do not exist when its turn comes is skipped, so that any operation can be
// left out of a sequence.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace sequences {

/// splitmix64: the same numbers on each machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  std::uint32_t below(std::uint32_t limit) { return static_cast<std::uint32_t>((next() >> 32) % limit); }

 private:
  std::uint64_t state_;
};

template <class Kind>
struct Operation {
  Kind kind;
  std::uint8_t side;      ///< 0: the first device's end, 1: the second one's
  std::uint8_t a, b, c;   ///< places of objects
  std::uint64_t choices;  ///< seed of all else: lengths, flags, ...
};

/// A kind of operation, and how often it is drawn.
template <class Kind>
struct Row {
  Kind kind;
  const char* name;
  unsigned weight;
};

/// Whether the rows are in the order of their kinds.
template <class Kind, std::size_t N>
constexpr bool in_order(const std::array<Row<Kind>, N>& rows) {
  for (std::size_t i = 0; i < N; ++i) {
    if (rows[i].kind != static_cast<Kind>(i)) return false;
  }
  return true;
}

template <class Kind>
Operation<Kind> any_of(Kind kind, Random& random) {
  const std::uint64_t bits = random.next();
  return {kind,
          static_cast<std::uint8_t>(bits & 1),
          static_cast<std::uint8_t>(bits >> 8),
          static_cast<std::uint8_t>(bits >> 16),
          static_cast<std::uint8_t>(bits >> 24),
          random.next()};
}

/// An operation of any kind.
template <class Kind, std::size_t N>
Operation<Kind> draw_one(const std::array<Row<Kind>, N>& rows, Random& random) {
  unsigned sum = 0;
  for (const auto& row : rows) sum += row.weight;
  unsigned point = random.below(sum);
  std::size_t i = 0;
  while (point >= rows[i].weight) point -= rows[i++].weight;
  return any_of(rows[i].kind, random);
}

template <class Kind, std::size_t N>
std::string text_of(const std::array<Row<Kind>, N>& rows, const Operation<Kind>& operation) {
  return std::string(rows[static_cast<std::size_t>(operation.kind)].name) + " side " +
         std::to_string(operation.side) + " (" + std::to_string(operation.a) + ", " + std::to_string(operation.b) +
         ", " + std::to_string(operation.c) + ") " + std::to_string(operation.choices);
}

}  // namespace sequences
