// When an acknowledge counts as missing: the Local ACK Timeout (IBTA vol. 1, 9.7.6.1.3), and long before it.
#pragma once

#include "proto/state/context.h"

namespace uroce::proto {

/// Starts the acknowledge timer. Once a round trip time is known, adds the QP to the AckWatch as well.
void expect_acknowledge(Context& context, Qp& qp);

/// The AckWatch reaches this QP. If an acknowledge is missing, retransmits early, possibly several times within one
/// timeout, without using up a retry ("adaptive retransmission" in mlx5). No NAK reports the loss of a message's
/// last packet; this way it costs a few round trips instead of a timeout.
void on_ack_watch(Context& context, Qp& qp);

/// Deadline::kAck has passed.
void on_ack_timeout(Context& context, Qp& qp);

}  // namespace uroce::proto
