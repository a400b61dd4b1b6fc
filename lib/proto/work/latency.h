// The time of a work request from its doorbell to its completion, waits in the send queue included, in whole duty
// cycles. Requests that fail are not counted.
#pragma once

#include "proto/state/context.h"

namespace uroce::proto {

/// The QP's doorbell was rung: measures the newest request in the ring, unless an older one is being measured.
void begin_latency(Qp& qp, Nanos rung);

/// The request before Requester::head has ended with success. Of a QP that measures one.
void end_latency(Context& context, Qp& qp);

}  // namespace uroce::proto
