// Whether a RoCE packet is addressed to this port, by destination address and VLAN. Each worker has its own table;
// only its thread uses it.
//
// An address is reachable only in its own VLAN: an address of VLAN 5 neither untagged nor with another VLAN's tag,
// an untagged address only untagged. A tag with VLAN id 0 carries only a priority and counts as untagged
// (802.1Q, 6.9). Groups are reachable in every VLAN in which the port has an address.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "net/link_stack.h"
#include "wire/address.h"
#include "wire/packet.h"

namespace uroce::net {

enum class Addressed : std::uint8_t { kToUs, kWrongAddress, kWrongVlan };

class LocalAddresses {
 public:
  void assign(std::span<const InterfaceAddress> addresses) {
    entries_.clear();
    for (const InterfaceAddress& own : addresses) entries_.push_back({own.address, own.vlan});
    last_ = 0;
  }

  Addressed check(const wire::RxPacket& packet) {
    const std::uint16_t vlan = packet.vlan & 0xfff;
    if (packet.multicast) [[unlikely]] {
      const bool any = std::ranges::any_of(entries_, [vlan](const Entry& own) { return own.vlan == vlan; });
      return any ? Addressed::kToUs : Addressed::kWrongVlan;
    }
    if (last_ < entries_.size() && entries_[last_].is(packet)) [[likely]] {
      return entries_[last_].vlan == vlan ? Addressed::kToUs : Addressed::kWrongVlan;
    }
    const auto own = std::ranges::find_if(entries_, [&](const Entry& entry) { return entry.is(packet); });
    if (own == entries_.end()) return Addressed::kWrongAddress;
    last_ = static_cast<std::size_t>(own - entries_.begin());
    return own->vlan == vlan ? Addressed::kToUs : Addressed::kWrongVlan;
  }

 private:
  struct Entry {
    wire::Address address;
    std::uint16_t vlan;

    bool is(const wire::RxPacket& packet) const {
      if (packet.ip_bytes == 40) return std::memcmp(packet.ip + 24, address.bytes.data(), 16) == 0;
      return std::memcmp(packet.ip + 16, address.bytes.data() + 12, 4) == 0 && address.is_v4();
    }
  };

  std::vector<Entry> entries_;
  std::size_t last_ = 0;  ///< the entry that the previous packet matched
};

}  // namespace uroce::net
