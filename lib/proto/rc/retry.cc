#include "proto/rc/retry.h"

#include <algorithm>
#include <array>

#include "proto/rc/send_position.h"
#include "proto/work/send_completion.h"
#include "proto/work/teardown.h"

namespace uroce::proto {
namespace {

/// In units of 10 us; code 0 is the longest.
constexpr std::array<std::uint32_t, 32> kRnrDelays = {
    65536, 1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,   192,
    256,   384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

Nanos timeout_of(const Qp& qp) { return Nanos{4096} << qp.retransmission.ack_timeout; }

/// Time between looks at one QP, for each QP: many do not cost a worker more than a few.
constexpr Nanos kWatchCost = 2 * kMicrosecond;

/// How late a packet may arrive that was reordered or duplicated.
constexpr Nanos kLatest = kMillisecond;

Nanos probe_delay(const Context& context) { return context.config.min_early_retry_delay / 8; }

/// Whether the packet that was sent last requests data, which a probe would bring a second time.
bool ends_with_request(const Qp& qp) {
  const bool within =
      qp.requester.cursor != qp.requester.started && qp.wqe(qp.requester.cursor).first() != qp.requester.psn;
  return qp.wqe(within ? qp.requester.cursor : qp.requester.cursor - 1).kind == Kind::kRead;
}

/// The time within which an acknowledge almost always arrives. Before the first has arrived, the peer is taken to
/// be near enough for a probe; for a READ, whose data may come twice, to be farther.
Nanos acknowledge_delay(const Context& context, const Qp& qp) {
  if (qp.retransmission.rtt.known()) return qp.retransmission.rtt.retransmit_timeout();
  return context.config.min_early_retry_delay * (ends_with_request(qp) ? 4 : 1);
}

/// How long after the last progress an acknowledge counts as missing; kNever: not before the timeout. A probe comes
/// first. The delay doubles each time, as long as an equal delay still fits into the timeout.
Nanos early_retry_delay(const Context& context, const Qp& qp) {
  const Nanos estimate = acknowledge_delay(context, qp);
  const Nanos delay = std::max(estimate, context.config.min_early_retry_delay);
  const Nanos next = delay << qp.retransmission.early_retries, before = next - delay;
  if (qp.requester.retry_cnt == 0 || before + 2 * next > timeout_of(qp)) return kNever;
  if (qp.retransmission.early_retries != 0 || ends_with_request(qp)) return before + next;
  return std::max(estimate, probe_delay(context));
}

/// The looks at all QPs are aligned to a grid, since the worker may have to wake up for each.
void schedule_ack_watch(Context& context, Qp& qp) {
  const Nanos interval = std::min(std::max(probe_delay(context), context.ack_watch.size() * kWatchCost),
                                  context.config.min_early_retry_delay);
  const Nanos grid = interval / 8 + 1;
  qp.retransmission.watched = true;
  context.ack_watch.add(qp.common.self, ((context.now + interval) / grid + 1) * grid);
}

/// After a timeout: one packet at a time.
void collapse_window(Qp& qp) {
  qp.reduction_end = qp.requester.max_psn;
  qp.congestion.window.on_timeout();
}

/// Goes back. `round_trip`: NAKs for what was in flight are older than the retransmission for this long.
void restart_from_una(Context& context, Qp& qp, Nanos round_trip) {
  qp.recovery.end = qp.requester.max_psn;
  qp.recovery.until = context.now + round_trip;
  rewind(context, qp);
  qp.retransmission.recovering = Recovering::kRetrying;
  context.schedule_send(qp);
}

/// How long sequence NAKs are taken for older than a retransmission. One that is wrongly ignored is not repeated by
/// every peer and costs a timeout, one that is wrongly obeyed costs a few packets: half a round trip, and no longer
/// than a reordered packet may be late. Without a timeout nothing would make up for a NAK that is ignored.
Nanos nak_age_limit(const Context& context, const Qp& qp) {
  if (qp.retransmission.ack_timeout == 0) return 0;
  return std::min(qp.retransmission.rtt.least(context.now) / 2, kLatest);
}

/// Whether an RNR NAK for una was waited for before, and nothing was sent since.
bool is_old_rnr_nak(const Qp& qp) {
  return qp.recovery.rnr_resumed != 0 && qp.recovery.rnr_psn == qp.requester.una &&
         qp.requester.psn == qp.requester.una;
}

/// A second RNR NAK for una that takes less than half as long as the first one may be a duplicate of it, or the
/// answer of a peer that has become faster. Returns how long the answer to the retransmission may still be on its
/// way, to tell them apart; 0: the NAK is not a duplicate.
Nanos doubt_rnr_nak(const Context& context, Qp& qp) {
  Recovery& recovery = qp.recovery;
  if (recovery.rnr_resumed == 0 || recovery.rnr_psn != qp.requester.una) {
    const bool measured = qp.retransmission.rtt.measures(qp.requester.una);
    recovery.rnr_round_trip = measured ? std::min(qp.retransmission.rtt.elapsed(context.now), kLatest) : 0;
    return 0;
  }
  const Nanos elapsed = time_since(recovery.rnr_resumed, context.now), before = recovery.rnr_round_trip;
  recovery.rnr_round_trip = std::min(before, elapsed);
  return elapsed < before / 2 ? before - elapsed : 0;
}

/// False: none is left, and the oldest WQE has failed.
bool take_rnr_retry(Context& context, Qp& qp) {
  if (qp.retransmission.rnr_retries_left == 0) {
    ++context.counters.rnr_nak_retry_err;
    ++qp.counters.rnr_nak_retry_err;
    fail_send(context, qp, UROCE_FAIL_NO_RECEIVE);
    return false;
  }
  if (qp.requester.rnr_retry != 7) --qp.retransmission.rnr_retries_left;
  return true;
}

/// First only the last packet is sent again: a NAK or its acknowledge then shows what was lost. Without an answer,
/// or when a retry is under way, everything unacknowledged is sent, unless the peer may be far away.
void retry_early(Context& context, Qp& qp) {
  ++context.counters.roce_adp_retrans;
  const bool first = qp.retransmission.early_retries++ == 0 && qp.retransmission.recovering == Recovering::kNo;
  if ((first || !qp.retransmission.rtt.known()) && rewind_last_packet(context, qp)) {
    context.schedule_send(qp);
    return;
  }
  const Nanos deadline = qp.deadline(Deadline::kAck);
  collapse_window(qp);
  restart_from_una(context, qp, nak_age_limit(context, qp));
  qp.deadline(Deadline::kAck) = deadline;
}

}  // namespace

Nanos rnr_delay(std::uint8_t timer_code) { return kRnrDelays[timer_code & 31] * (10 * kMicrosecond); }

void expect_acknowledge(Context& context, Qp& qp) {
  if (qp.retransmission.ack_timeout == 0) return;
  context.set_deadline(qp, Deadline::kAck, context.now + timeout_of(qp));
  if (!qp.retransmission.watched) schedule_ack_watch(context, qp);
}

void on_ack_watch(Context& context, Qp& qp) {
  qp.retransmission.watched = false;
  const Nanos limit = early_retry_delay(context, qp);
  if (qp.deadline(Deadline::kAck) == kNever || limit == kNever) return;
  const Nanos waited = time_since(qp.deadline(Deadline::kAck), context.now + timeout_of(qp));
  if (qp.requester.una != qp.requester.psn && waited >= limit) retry_early(context, qp);
  schedule_ack_watch(context, qp);
}

void retry_from_una(Context& context, Qp& qp) {
  if (qp.retransmission.recovering != Recovering::kNo) return;
  if (qp.retransmission.retries_left == 0) {
    ++context.counters.retry_exceeded_err;
    fail_send(context, qp, UROCE_FAIL_LOSS);
    return;
  }
  --qp.retransmission.retries_left;
  reduce_window(qp);
  restart_from_una(context, qp, nak_age_limit(context, qp));
  qp.retransmission.rtt.forget();
}

void reduce_window(Qp& qp) {
  const std::uint32_t outstanding = psns_between(qp.requester.una, qp.requester.max_psn);
  // The round trip of the last reduction ends when all that was in flight then is acknowledged.
  const std::uint32_t left = psns_between(qp.requester.una, qp.reduction_end);
  if (outstanding == 0 || (left != 0 && left <= outstanding)) return;
  qp.reduction_end = qp.requester.max_psn;
  qp.congestion.window.on_congestion();
}

void on_sequence_nak(Context& context, Qp& qp) {
  const std::uint32_t left = psns_between(qp.requester.una, qp.recovery.end);
  const bool resent = left != 0 && left <= psns_between(qp.requester.una, qp.requester.max_psn);
  if (!resent || context.now >= qp.recovery.until) retry_from_una(context, qp);
}

void wait_for_receiver(Context& context, Qp& qp, std::uint8_t timer_code) {
  if (qp.retransmission.recovering == Recovering::kWaiting || is_old_rnr_nak(qp)) return;
  const Nanos doubt = doubt_rnr_nak(context, qp);
  qp.recovery.rnr_doubtful = doubt != 0;
  if (doubt == 0 && !take_rnr_retry(context, qp)) return;
  qp.retransmission.rtt.forget();
  rewind(context, qp);
  qp.retransmission.recovering = Recovering::kWaiting;
  qp.common.send_state = SendState::kBlocked;
  context.set_deadline(qp, Deadline::kRnr, context.now + std::max(rnr_delay(timer_code), doubt));
}

void on_ack_progress(Context& context, Qp& qp, std::uint32_t acked) {
  qp.retransmission.rtt.acknowledged(qp.requester.una, context.now);
  qp.retransmission.early_retries = 0;
  qp.retransmission.recovering = Recovering::kNo;
  qp.retransmission.retries_left = qp.requester.retry_cnt;
  qp.retransmission.rnr_retries_left = qp.requester.rnr_retry;
  qp.congestion.window.on_ack(acked);
  qp.deadline(Deadline::kAck) = kNever;
  if (qp.requester.una != qp.requester.psn) expect_acknowledge(context, qp);
  if (qp.requester.draining) check_drained(context, qp);
  context.resume_send(qp);
}

void on_ack_timeout(Context& context, Qp& qp) {
  if (qp.requester.una == qp.requester.psn) return;
  qp.retransmission.early_retries = 0;
  ++context.counters.local_ack_timeout_err;
  ++qp.counters.local_ack_timeout_err;
  if (qp.retransmission.retries_left == 0) {
    ++context.counters.retry_exceeded_err;
    fail_send(context, qp, UROCE_FAIL_NO_ACKNOWLEDGE);
    return;
  }
  --qp.retransmission.retries_left;
  collapse_window(qp);
  restart_from_una(context, qp, 0);
  qp.retransmission.rtt.forget();
}

void on_rnr_timeout(Context& context, Qp& qp) {
  if (qp.retransmission.recovering != Recovering::kWaiting) return;  // there was progress in the meantime
  if (qp.recovery.rnr_doubtful && !take_rnr_retry(context, qp)) return;
  qp.retransmission.recovering = Recovering::kNo;
  qp.recovery.rnr_psn = qp.requester.una;
  qp.recovery.rnr_resumed = context.now;
  context.schedule_send(qp);
}

}  // namespace uroce::proto
