// Waiting for a receiver that is not ready: RNR NAKs (IBTA vol. 1, 9.7.5.2.8).
#pragma once

#include <cstdint>

#include "proto/state/context.h"

namespace uroce::proto {

/// RNR NAK: waits for the time of the timer code, then sends again from una. Progress ends the wait. A NAK that may
/// be a duplicate of the one before is waited for at least until the answer to the retransmission is due, and uses
/// up a retry only if that answer does not arrive.
void wait_for_receiver(Context& context, Qp& qp, std::uint8_t timer_code);

/// Deadline::kRnr has passed: sends again.
void on_rnr_timeout(Context& context, Qp& qp);

}  // namespace uroce::proto
