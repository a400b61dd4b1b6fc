// The devices of a process between which frames arrive as they were sent: those on one switch in memory
// (drivers/packet/switch). One object for each worker thread, over the transports that it steps.
//
// A frame on such a way tells its receiver which QP sent it (base::Frame::sender): a packet of another QP of these
// devices is found out even if all its headers are right, and payload may be named instead of carried.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "proto/state/types.h"
#include "wire/address.h"

namespace uroce::proto {

class Context;

class LocalDevices {
 public:
  /// Returns the number of the device, never 0; at most 255 are added. The context outlives its use.
  std::uint32_t add(const wire::Mac& mac, Context& context) {
    devices_.emplace_back(mac, &context);
    return static_cast<std::uint32_t>(devices_.size());
  }
  /// 0: none has the address.
  std::uint32_t device_at(const wire::Mac& mac) const {
    if (mac == wire::Mac{}) return 0;
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      if (devices_[i].first == mac) return static_cast<std::uint32_t>(i + 1);
    }
    return 0;
  }
  /// The transport of a sender; nullptr: none, or it came from a wire.
  Context* context_of(std::uint32_t sender) const {
    const std::size_t device = sender >> kQpnBits;
    return device - 1 < devices_.size() ? devices_[device - 1].second : nullptr;
  }

  static std::uint32_t sender(std::uint32_t device, Qpn qpn) { return device << kQpnBits | qpn.value; }
  static Qpn qpn_of(std::uint32_t sender) { return {sender & ((1u << kQpnBits) - 1)}; }

 private:
  static constexpr unsigned kQpnBits = 24;

  std::vector<std::pair<wire::Mac, Context*>> devices_;
};

}  // namespace uroce::proto
