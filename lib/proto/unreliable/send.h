// UC and UD: nothing is acknowledged, so a send is complete when its last packet is in a frame, and what is lost
// stays lost.
#pragma once

#include <cstdint>

#include "proto/state/context.h"

namespace uroce::proto::unreliable {

/// Sends up to `budget` packets (and counts it down). True: it could send more at once.
bool run(Context& context, Qp& qp, TxBurst& burst, std::uint32_t& budget);

}  // namespace uroce::proto::unreliable
