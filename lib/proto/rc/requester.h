// The requester: turns send WQEs into request packets, within the window, and goes back when told to.
#pragma once

#include <cstdint>

#include "proto/state/context.h"

namespace uroce::proto::requester {

/// Sends up to `budget` packets (and counts it down). True: it could send more at once.
bool run(Context& context, Qp& qp, TxBurst& burst, std::uint32_t& budget);

}  // namespace uroce::proto::requester
