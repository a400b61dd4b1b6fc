// The daemon's layout of queue pair numbers: 24 bits, of which the top 4 name the worker, so that steering a packet
// is one shift.
#pragma once

#include <cstdint>

#include "base/types.h"

namespace uroce {

inline constexpr std::uint32_t kQpnLocalBits = 20;
inline constexpr std::uint32_t kMaxWorkers = 1u << (24 - kQpnLocalBits);

constexpr std::uint32_t worker_of(Qpn qpn) { return qpn.value >> kQpnLocalBits; }

}  // namespace uroce
