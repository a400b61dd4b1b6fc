#include "proto/rc/ack_timeout.h"

#include <algorithm>

#include "proto/rc/recovery.h"
#include "proto/work/send_completion.h"

namespace uroce::proto {
namespace {

Nanos timeout_of(const Qp& qp) { return Nanos{4096} << qp.retransmission.ack_timeout; }

/// Time between looks at one QP, for each QP: many do not cost a worker more than a few.
constexpr Nanos kWatchCost = 2 * kMicrosecond;

Nanos probe_delay(const Context& context) { return context.config.min_early_retry_delay / 8; }

/// The time within which an acknowledge almost always arrives. Before the first has arrived, the peer is taken to
/// be near enough for a probe.
Nanos acknowledge_delay(const Context& context, const Qp& qp) {
  return qp.retransmission.rtt.known() ? qp.retransmission.rtt.retransmit_timeout()
                                       : context.config.min_early_retry_delay;
}

/// How long after the last progress an acknowledge counts as missing; kNever: not before the timeout. A probe comes
/// first. The delay doubles each time, as long as an equal delay still fits into the timeout.
Nanos early_retry_delay(const Context& context, const Qp& qp) {
  const Nanos estimate = acknowledge_delay(context, qp);
  const Nanos delay = std::max(estimate, context.config.min_early_retry_delay);
  const Nanos next = delay << qp.retransmission.early_retries, before = next - delay;
  if (qp.requester.retry_cnt == 0 || before + 2 * next > timeout_of(qp)) return kNever;
  if (qp.retransmission.early_retries != 0) return before + next;
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
  retry_after_silence(context, qp, RetryCause::kMissingAcknowledge, nak_age_limit(context, qp));
  qp.deadline(Deadline::kAck) = deadline;
}

}  // namespace

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
  retry_after_silence(context, qp, RetryCause::kTimeout, 0);
  qp.retransmission.rtt.forget();
}

}  // namespace uroce::proto
