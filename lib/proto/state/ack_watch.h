// QPs that wait for an acknowledge, each looked at once a round, in turn: whether something was lost is asked long
// before the timeout, and a timer for that would cost a worker of thousands of QPs more than their packets do.
#pragma once

#include <bit>
#include <cstdint>
#include <memory_resource>
#include <vector>

#include "base/types.h"

namespace uroce::proto {

class AckWatch {
 public:
  AckWatch(std::uint32_t qps, std::pmr::memory_resource* memory)
      : ring_(std::bit_ceil(qps), memory), mask_(std::bit_ceil(qps) - 1) {}

  /// `when` is never before that of the QP added last. No QP may be in it twice.
  void add(std::uint32_t qp, Nanos when) { ring_[tail_++ & mask_] = {when, qp}; }
  /// kNever: nobody is in it.
  Nanos next() const { return head_ == tail_ ? kNever : ring_[head_ & mask_].when; }
  std::uint32_t take() { return ring_[head_++ & mask_].qp; }
  /// The QP that comes `ahead` after the next one, or any.
  std::uint32_t peek(std::uint32_t ahead) const { return ring_[(head_ + ahead) & mask_].qp; }
  void remove(std::uint32_t qp) {
    std::uint32_t kept = head_;
    for (std::uint32_t i = head_; i != tail_; ++i) {
      const Entry entry = ring_[i & mask_];
      if (entry.qp != qp) ring_[kept++ & mask_] = entry;
    }
    tail_ = kept;
  }

 private:
  struct Entry {
    Nanos when = 0;
    std::uint32_t qp = 0;
  };
  std::pmr::vector<Entry> ring_;
  std::uint32_t mask_, head_ = 0, tail_ = 0;
};

}  // namespace uroce::proto
