// The requester: turns send WQEs into request packets, within the congestion window (IBTA vol. 1, 9.7.3: Requester:
// Generating Request Packets).
#pragma once

#include <cstdint>

#include "proto/state/context.h"

namespace uroce::proto::requester {

/// Sends up to `budget` packets (and decrements it). True: it could send more at once.
bool run(Context& context, Qp& qp, TxBurst& burst, std::uint32_t& budget);

}  // namespace uroce::proto::requester
