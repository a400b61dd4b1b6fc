// The port's GIDs, IPv4 as ::ffff:a.b.c.d; all are RoCE v2. An entry keeps its index while it exists; removing it
// leaves an empty entry, which the next address takes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "net/link_stack.h"
#include "wire/address.h"

namespace uroce::net {

/// Which entry an address takes, as scripts for other devices expect it.
enum class GidLayout : std::uint8_t {
  kAddresses,  ///< the first one that is empty: entry i is the i-th address
  kRxe,        ///< Linux rxe: entry 0 is the link-local address
  kMlx5,  ///< entry 1 is the link-local address, 3 the first other one, 5 the next: the even ones, RoCE v1, are
          ///< empty
};

class GidTable {
 public:
  GidTable() = default;
  explicit GidTable(std::span<const InterfaceAddress> addresses, GidLayout layout = GidLayout::kAddresses)
      : layout_(layout) {
    for (const InterfaceAddress& address : addresses) add(address);
  }

  static constexpr std::size_t kMost = 256;

  /// Number of entries up to the last one that is not empty.
  std::size_t size() const { return gids_.size(); }
  /// nullopt: no such entry, or an empty one.
  std::optional<wire::Address> at(std::size_t index) const {
    if (index >= gids_.size()) return std::nullopt;
    if (!gids_[index]) return std::nullopt;
    return gids_[index]->address;
  }
  /// nullopt: no such entry, or an empty one.
  std::optional<InterfaceAddress> entry(std::size_t index) const {
    return index < gids_.size() ? gids_[index] : std::nullopt;
  }
  /// VLAN of the entry; 0: none.
  std::uint16_t vlan(std::size_t index) const {
    return index < gids_.size() && gids_[index] ? gids_[index]->vlan : std::uint16_t{0};
  }
  std::vector<InterfaceAddress> addresses() const {
    std::vector<InterfaceAddress> all;
    for (const auto& entry : gids_) {
      if (entry) all.push_back(*entry);
    }
    return all;
  }
  /// False: already present, or the table is full.
  bool add(const InterfaceAddress& gid) {
    if (find(gid.address)) return false;
    std::size_t index = 0;
    while (index < kMost && !may_take(index, gid)) ++index;
    if (index == kMost) return false;
    if (index >= gids_.size()) gids_.resize(index + 1);
    gids_[index] = gid;
    return true;
  }
  /// False: not present.
  bool remove(const wire::Address& gid) {
    const auto index = find(gid);
    if (!index) return false;
    gids_[*index].reset();
    while (!gids_.empty() && !gids_.back()) gids_.pop_back();
    return true;
  }
  std::optional<std::size_t> find(const wire::Address& gid) const {
    for (std::size_t i = 0; i < gids_.size(); ++i) {
      if (gids_[i] && gids_[i]->address == gid) return i;
    }
    return std::nullopt;
  }

 private:
  bool may_take(std::size_t index, const InterfaceAddress& gid) const {
    if (index < gids_.size() && gids_[index]) return false;
    const bool link_local = gid.vlan == 0 && gid.address.is_link_local();
    if (layout_ == GidLayout::kRxe) return index != 0 || link_local;
    if (layout_ == GidLayout::kMlx5) return index % 2 == 1 && (index != 1 || link_local);
    return true;
  }

  GidLayout layout_ = GidLayout::kAddresses;
  std::vector<std::optional<InterfaceAddress>> gids_;
};

}  // namespace uroce::net
