// UC and UD sends (IBTA vol. 1, 9.8): nothing is acknowledged. A send completes when its last packet is in a frame;
// lost packets are not sent again.
#pragma once

#include <cstdint>

#include "proto/state/context.h"

namespace uroce::proto::unreliable {

/// Sends up to `budget` packets (and decrements it). True: it could send more at once.
bool run(Context& context, Qp& qp, TxBurst& burst, std::uint32_t& budget);

}  // namespace uroce::proto::unreliable
