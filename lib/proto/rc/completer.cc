#include "proto/rc/completer.h"

#include "proto/rc/recovery.h"
#include "proto/rc/rnr.h"
#include "proto/work/by_reference.h"
#include "proto/work/gather.h"
#include "proto/work/held_completions.h"
#include "proto/work/send_completion.h"
#include "proto/work/wqe.h"
#include "wire/extended_headers.h"

namespace uroce::proto::completer {
namespace {

/// Acknowledges everything before `upto`, which lies within [una, max_psn]; an ACK covers all earlier requests
/// (IBTA vol. 1, 9.7.5.1.2: Coalesced Acknowledge Messages). False: stopped at a READ or atomic, which only its own
/// response completes. Adds the cost of what left the window to `acked`.
bool acknowledge(Context& context, Qp& qp, Psn upto, std::uint32_t& acked) {
  while (qp.requester.una != upto) {
    const Wqe& wqe = qp.wqe(qp.requester.head);
    if (!wqe.is_message()) return false;
    const std::uint32_t done = psns_between(wqe.first(), qp.requester.una);
    const std::uint32_t left = wqe.psn_count - done;
    const std::uint32_t step = psns_between(qp.requester.una, upto);
    if (step < left) {
      acked += cost_of(step << qp.common.mtu_shift, step);
      qp.requester.una = upto;
      break;
    }
    acked += cost_of(wqe.length - (done << qp.common.mtu_shift), left);
    qp.requester.una = wqe.end();
    complete_send(context, qp);
  }
  return true;
}

/// Ends the processing of a packet that acknowledged `acked` bytes.
void settle(Context& context, Qp& qp, std::uint32_t acked) {
  if (acked == 0) return;
  qp.congestion.on_acknowledged(acked);
  publish_free(qp);
  if (qp.requester.psn.before(qp.requester.una)) skip_to_una(qp);
  on_ack_progress(context, qp, acked);
}

void implied_nak(Context& context, Qp& qp) {
  if (qp.retransmission.recovering != Recovering::kNo)
    return;  // one of the packets that followed the lost response
  ++context.counters.implied_nak_seq_err;
  retry_from_una(context, qp, RetryCause::kImpliedNak);
}

void on_nak(Context& context, Qp& qp, std::uint8_t syndrome) {
  switch (static_cast<wire::Nak>(syndrome)) {
    case wire::Nak::kSequence:
      ++context.counters.packet_seq_err;
      ++qp.counters.packet_seq_err;
      return on_sequence_nak(context, qp);
    case wire::Nak::kInvalidRequest:
      ++context.counters.req_remote_invalid_request;
      return fail_send(context, qp, UROCE_FAIL_NAK_REQUEST);
    case wire::Nak::kRemoteAccess:
      ++context.counters.req_remote_access_errors;
      return fail_send(context, qp, UROCE_FAIL_NAK_ACCESS);
    case wire::Nak::kRemoteOperational: return fail_send(context, qp, UROCE_FAIL_NAK_OPERATION);
    default: return fail_send(context, qp, UROCE_FAIL_NAK_CODE);
  }
}

/// Credits count from the oldest message that the responder has not completed. A promise is not taken back: codes
/// are rounded down, and an older ACK may promise less.
void take_credits(Qp& qp, std::uint8_t syndrome) {
  if ((syndrome & 0x1f) == wire::kAckUnlimited) [[likely]] {
    qp.requester.limited = false;
    return;
  }
  const std::uint32_t limit = qp.requester.head + wire::credits_of(syndrome);
  const bool later = static_cast<std::int32_t>(limit - qp.requester.credit_limit) > 0;
  if (later || !qp.requester.limited) qp.requester.credit_limit = limit;
  qp.requester.limited = true;
}

void on_acknowledge(Context& context, Qp& qp, const wire::RxPacket& packet) {
  const wire::Aeth aeth = wire::Aeth::parse(packet.bth_start + packet.info->aeth);
  const bool is_ack = (aeth.syndrome & 0x60) == 0;
  std::uint32_t acked = 0;
  // A NAK acknowledges the PSNs before its own, an ACK also its own (IBTA vol. 1, 9.7.5.2: AETH format).
  const bool whole = acknowledge(context, qp, is_ack ? packet.bth.psn + 1 : packet.bth.psn, acked);
  if (is_ack) take_credits(qp, aeth.syndrome);
  settle(context, qp, acked);
  if (!whole) return implied_nak(context, qp);
  if (is_ack) {
    ++context.counters.acks_rcvd;
  } else if ((aeth.syndrome & 0x60) == wire::kRnrNak) {
    ++context.counters.rnr_nak_rcvd;
    wait_for_receiver(context, qp, aeth.syndrome & 0x1f);
  } else if ((aeth.syndrome & 0x60) == 0x60) {
    on_nak(context, qp, aeth.syndrome);
  } else {
    ++context.counters.drop_unexpected;
  }
}

/// Accounts for a response of `cost` and `psns`; `ends`: it is the last of a request.
void book_response(Context& context, Qp& qp, std::uint32_t cost, bool ends, std::uint32_t psns = 1) {
  const bool asked_for =
      qp.requester.una.before(qp.requester.psn);  // else it answers a request that was sent before going back
  qp.requester.una = qp.requester.una + psns;
  if (!asked_for) return;
  qp.reads.unanswered = false;
  context.release_read_budget(qp, cost);
  if (ends && qp.requester.reads_in_flight != 0) --qp.requester.reads_in_flight;
}

/// READ and atomic responses acknowledge all earlier requests. Returns the cost of these.
std::uint32_t acknowledge_earlier(Context& context, Qp& qp, const wire::RxPacket& packet) {
  std::uint32_t acked = 0;
  acknowledge(context, qp, packet.bth.psn, acked);
  return acked;
}

void fail_response(Context& context, Qp& qp, std::uint32_t acked, std::uint8_t failure) {
  settle(context, qp, acked);
  fail_send(context, qp, failure);
}

/// Returns the failure of the WQE at head, or 0. The list of a response that was placed is not looked at again.
std::uint8_t take_data(Context& context, Qp& qp, const wire::RxPacket& packet, const ResponsePart& part) {
  const Wqe& wqe = qp.wqe(qp.requester.head);
  SgeCursor& at = qp.requester.read_at;
  if (part.index == 0) at = {};
  if (!packet.placed()) {
    const auto result = scatter(context, qp.common.pd, wqe.sges(), wqe.num_sge, at, packet.payload, part.bytes);
    return result == ScatterResult::kOk ? 0 : UROCE_FAIL_RESPONSE_MEMORY;
  }
  at.offset += part.bytes;
  if (at.offset == wqe.sges()[at.index].length) at = {at.index + 1, 0};
  return 0;
}

std::uint8_t take_original(Context& context, const Qp& qp, const wire::RxPacket& packet) {
  const Wqe& wqe = qp.wqe(qp.requester.head);
  const std::uint64_t original = wire::AtomicAckEth::parse(packet.bth_start + packet.info->atomic_ack_eth).original;
  SgeCursor at;
  const auto result = scatter(context, qp.common.pd, wqe.sges(), wqe.num_sge, at,
                              reinterpret_cast<const std::byte*>(&original), sizeof original);
  return result == ScatterResult::kOk ? 0 : UROCE_FAIL_RESPONSE_MEMORY;
}

void on_read_response(Context& context, Qp& qp, const wire::RxPacket& packet, const ResponsePart& part) {
  const std::uint32_t acked = acknowledge_earlier(context, qp, packet);
  if (const std::uint8_t failure = take_data(context, qp, packet, part); failure != 0)
    return fail_response(context, qp, acked, failure);
  if (lost_payload(context, packet)) [[unlikely]] {
    const Wqe& wqe = qp.wqe(qp.requester.head);
    qp.requester.read_at = locate(wqe.sges(), wqe.num_sge, part.index << qp.common.mtu_shift);
    return settle(context, qp, acked);
  }
  const std::uint32_t cost = cost_of(part.bytes, packet.psns);
  book_response(context, qp, cost, part.ends, packet.psns);
  if (part.last) complete_send(context, qp);
  settle(context, qp, acked + cost);
}

void on_atomic_response(Context& context, Qp& qp, const wire::RxPacket& packet) {
  const std::uint32_t acked = acknowledge_earlier(context, qp, packet);
  if (const std::uint8_t failure = take_original(context, qp, packet); failure != 0)
    return fail_response(context, qp, acked, failure);
  const std::uint32_t cost = cost_of(qp.wqe(qp.requester.head).length, 1);
  book_response(context, qp, cost, true);
  complete_send(context, qp);
  settle(context, qp, acked + cost);
}

}  // namespace

void receive(Context& context, Qp& qp, const wire::RxPacket& packet, const Plan& plan) {
  switch (plan.action) {
    case Action::kAcknowledge: return on_acknowledge(context, qp, packet);
    case Action::kReadResponse: return on_read_response(context, qp, packet, plan.part);
    case Action::kAtomicResponse: return on_atomic_response(context, qp, packet);
    case Action::kImpliedNak:
      settle(context, qp, acknowledge_earlier(context, qp, packet));
      return implied_nak(context, qp);
    case Action::kFailKind:
      return fail_response(context, qp, acknowledge_earlier(context, qp, packet), UROCE_FAIL_RESPONSE_KIND);
    case Action::kFailLength:
      return fail_response(context, qp, acknowledge_earlier(context, qp, packet), UROCE_FAIL_RESPONSE_LENGTH);
    case Action::kDropUnexpected: ++context.counters.drop_unexpected; return;
    case Action::kDropBadState: ++context.counters.drop_bad_state; return;
    default: return;  // requests are the responder's
  }
}

}  // namespace uroce::proto::completer
