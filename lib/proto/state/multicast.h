// Which UD QPs are attached to which multicast groups: sorted, so that the QPs of a group are adjacent.
#pragma once

#include <algorithm>
#include <cerrno>
#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "wire/address.h"

namespace uroce::proto {

class MulticastTable {
 public:
  struct Attachment {
    wire::Address group;
    std::uint32_t qp = 0;  ///< slot
    auto operator<=>(const Attachment&) const = default;
  };

  explicit MulticastTable(std::uint32_t capacity) { rows_.reserve(capacity); }

  int attach(const wire::Address& group, std::uint32_t qp) {
    const Attachment row{group, qp};
    const auto at = std::ranges::lower_bound(rows_, row);
    if (at != rows_.end() && *at == row) return 0;
    if (rows_.size() == rows_.capacity()) return ENOMEM;
    rows_.insert(at, row);
    return 0;
  }
  int detach(const wire::Address& group, std::uint32_t qp) {
    const Attachment row{group, qp};
    const auto at = std::ranges::lower_bound(rows_, row);
    if (at == rows_.end() || *at != row) return EINVAL;
    rows_.erase(at);
    return 0;
  }
  void forget(std::uint32_t qp) {
    std::erase_if(rows_, [qp](const Attachment& row) { return row.qp == qp; });
  }
  std::span<const Attachment> members(const wire::Address& group) const {
    const auto first = std::ranges::lower_bound(rows_, group, {}, &Attachment::group);
    const auto last = std::ranges::upper_bound(first, rows_.end(), group, {}, &Attachment::group);
    return {first, last};
  }

 private:
  std::vector<Attachment> rows_;
};

}  // namespace uroce::proto
