// Allocates small numbers that identify objects in the whole daemon. Numbers never used come first, then the number
// that has been free longest.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

namespace uroce::control {

class IdPool {
 public:
  /// Numbers in [first, end).
  IdPool(std::uint32_t first, std::uint32_t end) : next_(first), end_(end) {}

  /// nullopt: all are in use.
  std::optional<std::uint32_t> allocate() {
    if (next_ < end_) return next_++;
    if (free_.empty()) return std::nullopt;
    const std::uint32_t number = free_.front();
    free_.pop_front();
    return number;
  }
  void release(std::uint32_t number) { free_.push_back(number); }

 private:
  std::uint32_t next_, end_;
  std::deque<std::uint32_t> free_;
};

}  // namespace uroce::control
