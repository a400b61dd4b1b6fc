#include "proto/rc/recovery.h"

#include <algorithm>

#include "base/probe.h"
#include "proto/rc/ack_timeout.h"
#include "proto/work/gather.h"
#include "proto/work/send_completion.h"
#include "proto/work/teardown.h"

namespace uroce::proto {
namespace {

/// Continues at this PSN of that WQE.
void seek(Qp& qp, std::uint32_t cursor, Psn psn) {
  qp.requester.cursor = cursor;
  qp.requester.psn = psn;
  qp.requester.ack_requested = qp.requester.una;
  qp.requester.send_at = {};
  if (cursor == qp.requester.started) return;
  const Wqe& wqe = qp.wqe(cursor);
  if (wqe.is_message() && !wqe.is_inline()) {
    qp.requester.send_at = locate(wqe.sges(), wqe.num_sge, psns_between(wqe.first(), psn) << qp.common.mtu_shift);
  }
}

/// Goes back. `round_trip`: NAKs for what was in flight are older than the retransmission for this long.
void restart_from_una(Context& context, Qp& qp, RetryCause cause, Nanos round_trip) {
  UROCE_PROBE(retransmit, qp.common.qpn.value, qp.requester.una.value());
  qp.recovery.end = qp.requester.max_psn;
  qp.recovery.until = context.now + round_trip;
  context.note_event(qp, QpEventType::kWentBack, qp.requester.una, static_cast<std::uint8_t>(cause),
                     psns_between(qp.requester.una, qp.requester.psn));
  rewind(context, qp);
  qp.retransmission.recovering = Recovering::kRetrying;
  context.schedule_send(qp);
}

/// Where the last request of a READ begins, of those for what is before `end`; una, if it has been answered in
/// part. No later: Linux answers no request that begins before one that was repeated.
std::uint32_t last_request(const Qp& qp, const Wqe& wqe, std::uint32_t end) {
  const Psn last = wqe.first() + (end - 1);
  Psn begin = wqe.first() + ((end - 1) & ~(qp.reads.chunk_at(last) - 1));
  if (!last.before(qp.reads.chunk_since) && qp.reads.chunk_since.after(begin)) begin = qp.reads.chunk_since;
  if (qp.requester.una.after(begin)) begin = qp.requester.una;
  return psns_between(wqe.first(), begin);
}

}  // namespace

Nanos nak_age_limit(const Context& context, const Qp& qp) {
  if (qp.retransmission.ack_timeout == 0) return 0;
  return std::min(qp.retransmission.rtt.least(context.now) / 2, kLatest);
}

void retry_from_una(Context& context, Qp& qp, RetryCause cause) {
  if (qp.retransmission.recovering != Recovering::kNo) return;
  if (qp.retransmission.retries_left == 0) {
    ++context.counters.retry_exceeded_err;
    fail_send(context, qp, UROCE_FAIL_LOSS);
    return;
  }
  --qp.retransmission.retries_left;
  context.shrink_window(qp, CongestionCause::kLoss);
  restart_from_una(context, qp, cause, nak_age_limit(context, qp));
  qp.retransmission.rtt.forget();
}

void retry_after_silence(Context& context, Qp& qp, RetryCause cause, Nanos round_trip) {
  context.shrink_window(qp, CongestionCause::kTimeout);
  restart_from_una(context, qp, cause, round_trip);
}

void on_sequence_nak(Context& context, Qp& qp) {
  const std::uint32_t left = psns_between(qp.requester.una, qp.recovery.end);
  const bool resent = left != 0 && left <= psns_between(qp.requester.una, qp.requester.max_psn);
  if (!resent || context.now >= qp.recovery.until) retry_from_una(context, qp, RetryCause::kSequenceNak);
}

void on_ack_progress(Context& context, Qp& qp, std::uint32_t acked) {
  UROCE_PROBE(acknowledge, qp.common.qpn.value, qp.requester.una.value(), acked);
  qp.retransmission.rtt.acknowledged(qp.requester.una, context.now);
  qp.retransmission.early_retries = 0;
  qp.retransmission.recovering = Recovering::kNo;
  qp.retransmission.retries_left = qp.requester.retry_cnt;
  qp.retransmission.rnr_retries_left = qp.requester.rnr_retry;
  qp.congestion.grow({acked, context.now, qp.retransmission.rtt.mean()}, qp.full_packet_cost());
  qp.deadline(Deadline::kAck) = kNever;
  if (qp.requester.una != qp.requester.psn) expect_acknowledge(context, qp);
  if (qp.requester.draining) check_drained(context, qp);
  context.resume_send(qp);
}

void rewind(Context& context, Qp& qp) {
  qp.requester.reads_in_flight = 0;
  if ((qp.reads.reserved | qp.reads.reserved_before) != 0) context.release_read_budget(qp);
  qp.deadline(Deadline::kAck) = kNever;
  skip_to_una(qp);
}

bool rewind_last_packet(Context& context, Qp& qp) {
  const bool within =
      qp.requester.cursor != qp.requester.started && qp.wqe(qp.requester.cursor).first() != qp.requester.psn;
  const std::uint32_t cursor = within ? qp.requester.cursor : qp.requester.cursor - 1;
  const Wqe& wqe = qp.wqe(cursor);
  if (wqe.failure != 0) return false;
  const std::uint32_t end = psns_between(wqe.first(), qp.requester.psn);
  const std::uint32_t index = wqe.kind == Kind::kRead ? last_request(qp, wqe, end) : end - 1;
  const std::uint32_t cost = cost_of(
      std::min(wqe.window_bytes(), end << qp.common.mtu_shift) - (index << qp.common.mtu_shift), end - index);
  qp.congestion.take_back(cost);
  if (wqe.has(abi::kAnswered)) {
    context.release_read_budget(qp, cost);
    if (qp.requester.reads_in_flight != 0) --qp.requester.reads_in_flight;
  }
  seek(qp, cursor, wqe.first() + index);
  UROCE_PROBE(retransmit, qp.common.qpn.value, qp.requester.psn.value());
  context.note_event(qp, QpEventType::kProbed, qp.requester.psn, 0);
  qp.retransmission.cost_since_ack_request = qp.congestion.window();
  return true;
}

void skip_to_una(Qp& qp) {
  qp.congestion.take_back_all();
  qp.retransmission.cost_since_ack_request = 0;
  seek(qp, qp.requester.head, qp.requester.una);
}

}  // namespace uroce::proto
