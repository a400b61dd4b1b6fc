// What ends a send WQE, and what makes the requester go back: acknowledge timeouts, NAKs, RNR waits.
#pragma once

#include <cstdint>

#include "proto/state/context.h"

namespace uroce::proto {

/// Sets the timer of what was sent. Once a round trip is known the QP goes on patrol, too.
void expect_acknowledge(Context& context, Qp& qp);

/// The patrol comes to this QP: where an acknowledge is missed, asks early whether something was lost, more than
/// once within a timeout and without using up a retry (mlx5 calls that adaptive retransmission). A lost last
/// packet, of which no NAK tells, so costs some round trips and not a whole timeout.
void on_ack_watch(Context& context, Qp& qp);

/// A packet was lost: sends from una on again, if a retry is left, else fails the oldest WQE. Once until there is
/// progress: the timer sees to a retry that is lost too.
void retry_from_una(Context& context, Qp& qp);

/// The peer was not ready to receive: waits as long as the timer code says.
void wait_for_receiver(Context& context, Qp& qp, std::uint8_t timer_code);

/// una moved forward by `acked` bytes of cost: retries start afresh.
void on_ack_progress(Context& context, Qp& qp, std::uint32_t acked);

/// Duration of an RNR timer code (IBTA vol. 1, table 45).
Nanos rnr_delay(std::uint8_t timer_code);

/// Deadline::kAck has come.
void on_ack_timeout(Context& context, Qp& qp);

/// Deadline::kRnr has come: sends again.
void on_rnr_timeout(Context& context, Qp& qp);

}  // namespace uroce::proto
