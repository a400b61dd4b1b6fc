// When the requester goes back and sends again: acknowledge timeouts, NAKs, RNR waits (IBTA vol. 1, 9.7.5.2 and
// 9.7.6.1.3).
#pragma once

#include <cstdint>

#include "proto/state/context.h"

namespace uroce::proto {

/// Starts the acknowledge timer. Once a round trip time is known, adds the QP to the AckWatch as well.
void expect_acknowledge(Context& context, Qp& qp);

/// The AckWatch reaches this QP. If an acknowledge is missing, retransmits early, possibly several times within one
/// timeout, without using up a retry ("adaptive retransmission" in mlx5). No NAK reports the loss of a message's
/// last packet; this way it costs a few round trips instead of a timeout.
void on_ack_watch(Context& context, Qp& qp);

/// A packet was lost: sends again from una if a retry is left, or else fails the oldest WQE. Once until there is
/// progress; the timer covers the loss of the retry.
void retry_from_una(Context& context, Qp& qp);

/// A sequence NAK for una: retry_from_una(), unless the NAK answers packets from before the last retransmission.
/// One packet that was overtaken causes a NAK for itself, and another for each packet that it overtook.
void on_sequence_nak(Context& context, Qp& qp);

/// A packet was lost, or marked by a congested switch: halves the window, at most once per round trip (RFC 3168,
/// 6.1.2). Not if nothing is in flight: then a CNP is about responses.
void reduce_window(Qp& qp);

/// RNR NAK: waits for the time of the timer code, then sends again from una (IBTA vol. 1, 9.7.5.2.8). Progress ends
/// the wait. A NAK that may be a duplicate of the one before is waited for at least until the answer to the
/// retransmission is due, and uses up a retry only if that answer does not arrive.
void wait_for_receiver(Context& context, Qp& qp, std::uint8_t timer_code);

/// una moved forward by `acked` bytes of cost: resets the retry counts.
void on_ack_progress(Context& context, Qp& qp, std::uint32_t acked);

/// Duration of an RNR timer code (IBTA vol. 1, table 45).
Nanos rnr_delay(std::uint8_t timer_code);

/// Deadline::kAck has passed (IBTA vol. 1, 9.7.6.1.3).
void on_ack_timeout(Context& context, Qp& qp);

/// Deadline::kRnr has passed: sends again.
void on_rnr_timeout(Context& context, Qp& qp);

}  // namespace uroce::proto
