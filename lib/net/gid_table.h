// The port's GIDs: entry i is the i-th configured address, IPv4 as ::ffff:a.b.c.d; all are RoCE v2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "net/link_stack.h"
#include "wire/packet.h"

namespace uroce::net {

class GidTable {
 public:
  GidTable() = default;
  explicit GidTable(std::span<const InterfaceAddress> addresses) {
    for (const InterfaceAddress& entry : addresses) gids_.push_back(entry.address);
  }

  std::size_t size() const { return gids_.size(); }
  /// nullopt: no such entry.
  std::optional<wire::Address> at(std::size_t index) const {
    if (index >= gids_.size()) return std::nullopt;
    return gids_[index];
  }
  std::optional<std::size_t> find(const wire::Address& gid) const {
    for (std::size_t i = 0; i < gids_.size(); ++i) {
      if (gids_[i] == gid) return i;
    }
    return std::nullopt;
  }

 private:
  std::vector<wire::Address> gids_;
};

}  // namespace uroce::net
