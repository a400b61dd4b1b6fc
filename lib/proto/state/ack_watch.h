// QPs that wait for an acknowledge, in the order in which they are checked: each once per round. A loss is detected
// long before the timeout this way; with thousands of QPs, a timer per QP would cost a worker more than their
// packets do.
#pragma once

#include <algorithm>
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

  std::uint32_t size() const { return tail_ - head_; }
  /// Not before the QP that was added last. A QP must not be added twice.
  void add(std::uint32_t qp, Nanos when) {
    if (head_ != tail_) when = std::max(when, ring_[(tail_ - 1) & mask_].when);
    ring_[tail_++ & mask_] = {when, qp};
  }
  /// kNever: it is empty.
  Nanos next() const { return head_ == tail_ ? kNever : ring_[head_ & mask_].when; }
  bool due(Nanos now) const { return head_ != tail_ && ring_[head_ & mask_].when <= now; }
  std::uint32_t take() { return ring_[head_++ & mask_].qp; }
  /// The QP `ahead` places after the next one, or an arbitrary one.
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
