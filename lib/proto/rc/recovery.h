// What is sent again after a loss: everything from una on (go-back-N), or the last packet, to learn what was lost.
#pragma once

#include <cstdint>

#include "proto/state/context.h"

namespace uroce::proto {

/// How late a packet may arrive that was reordered or duplicated.
inline constexpr Nanos kLatest = kMillisecond;

/// A packet was lost: sends again from una if a retry is left, or else fails the oldest WQE. Once until there is
/// progress; the timer covers the loss of the retry.
void retry_from_una(Context& context, Qp& qp, RetryCause cause);

/// A sequence NAK for una: retry_from_una(), unless the NAK answers packets from before the last retransmission.
/// One packet that was overtaken causes a NAK for itself, and another for each packet that it overtook.
void on_sequence_nak(Context& context, Qp& qp);

/// An acknowledge is missing: sends again from una, one packet at a time at first. Sequence NAKs for what was in
/// flight are older than the retransmission, for `round_trip`.
void retry_after_silence(Context& context, Qp& qp, RetryCause cause, Nanos round_trip);

/// How long sequence NAKs are taken for older than a retransmission. One that is wrongly ignored is not repeated by
/// every peer and costs a timeout, one that is wrongly obeyed costs a few packets: half a round trip, and no longer
/// than a reordered packet may be late. Without a timeout nothing would make up for a NAK that is ignored.
Nanos nak_age_limit(const Context& context, const Qp& qp);

/// una moved forward by `acked` bytes of cost: resets the retry counts.
void on_ack_progress(Context& context, Qp& qp, std::uint32_t acked);

/// Goes back to una: everything that is not acknowledged is sent again.
void rewind(Context& context, Qp& qp);

/// Goes back by one packet, which then requests an acknowledge; of a READ, to what is missing of its last request.
/// False: it cannot be sent again, and nothing has changed.
bool rewind_last_packet(Context& context, Qp& qp);

/// Continues at una after a late acknowledge moved it past the packet that was to be sent next.
void skip_to_una(Qp& qp);

}  // namespace uroce::proto
