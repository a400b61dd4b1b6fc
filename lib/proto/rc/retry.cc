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

Nanos timeout_of(const Qp& qp) { return Nanos{4096} << qp.ack_timeout; }

/// How long after the last progress an acknowledge is missed; kNever: not before the timeout. Patience doubles each
/// time, while it leaves as much of the timeout again.
Nanos early_retry_delay(const Context& context, const Qp& qp) {
  const Nanos patience = std::max(qp.rtt.retransmit_timeout(), context.config.min_early_retry_delay);
  const Nanos next = patience << qp.early_retries, before = next - patience;
  return qp.retry_cnt != 0 && before + 2 * next <= timeout_of(qp) ? before + next : kNever;
}

/// The rounds of all QPs meet, since a worker may have to wake for each.
void schedule_ack_watch(Context& context, Qp& qp) {
  const Nanos grid = context.config.min_early_retry_delay / 8 + 1;
  qp.watched = true;
  context.ack_watch.add(qp.self, ((context.now + context.config.min_early_retry_delay) / grid + 1) * grid);
}

void restart_from_una(Context& context, Qp& qp) {
  rewind(context, qp);
  qp.retrying = true;
  context.schedule_send(qp);
}

/// First the last packet goes out again, and a NAK or its acknowledge tells what was lost; where that is not
/// answered either, or NAKs are given already, all that is unacknowledged.
void retry_early(Context& context, Qp& qp) {
  ++context.counters.roce_adp_retrans;
  if (qp.early_retries++ == 0 && !qp.retrying && rewind_last_packet(context, qp)) {
    context.schedule_send(qp);
    return;
  }
  const Nanos deadline = qp.ack_deadline;
  qp.window.on_timeout();
  restart_from_una(context, qp);
  qp.ack_deadline = deadline;
}

void acknowledge_timeout(Context& context, Qp& qp) {
  qp.ack_deadline = kNever;
  if (qp.una == qp.psn) return;
  qp.rtt.forget();
  qp.early_retries = 0;
  ++context.counters.local_ack_timeout_err;
  ++qp.counters.local_ack_timeout_err;
  if (qp.retries_left == 0) {
    ++context.counters.retry_exceeded_err;
    fail_send(context, qp, UROCE_WC_RETRY_EXC_ERR);
    return;
  }
  --qp.retries_left;
  qp.window.on_timeout();
  restart_from_una(context, qp);
}

}  // namespace

Nanos rnr_delay(std::uint8_t timer_code) { return kRnrDelays[timer_code & 31] * (10 * kMicrosecond); }

void expect_acknowledge(Context& context, Qp& qp) {
  if (qp.ack_timeout == 0) return;
  qp.ack_deadline = context.now + timeout_of(qp);
  context.arm_timer(qp, qp.ack_deadline);
  if (!qp.watched && qp.rtt.known()) schedule_ack_watch(context, qp);
}

void on_ack_watch(Context& context, Qp& qp) {
  qp.watched = false;
  const Nanos limit = early_retry_delay(context, qp);
  if (qp.ack_deadline == kNever || limit == kNever) return;
  const Nanos waited = context.now + timeout_of(qp) - qp.ack_deadline;
  if (qp.una != qp.psn && waited >= limit) retry_early(context, qp);
  schedule_ack_watch(context, qp);
}

void retry_from_una(Context& context, Qp& qp) {
  if (qp.retrying) return;
  if (qp.retries_left == 0) {
    ++context.counters.retry_exceeded_err;
    fail_send(context, qp, UROCE_WC_RETRY_EXC_ERR);
    return;
  }
  --qp.retries_left;
  qp.rtt.forget();
  qp.window.on_loss();
  restart_from_una(context, qp);
}

void wait_for_receiver(Context& context, Qp& qp, std::uint8_t timer_code) {
  if (qp.rnr_waiting) return;
  if (qp.rnr_retries_left == 0) {
    ++context.counters.rnr_nak_retry_err;
    ++qp.counters.rnr_nak_retry_err;
    fail_send(context, qp, UROCE_WC_RNR_RETRY_EXC_ERR);
    return;
  }
  if (qp.rnr_retry != 7) --qp.rnr_retries_left;
  qp.rtt.forget();
  rewind(context, qp);
  qp.rnr_waiting = true;
  qp.send_state = SendState::kBlocked;
  qp.rnr_deadline = context.now + rnr_delay(timer_code);
  context.arm_timer(qp, qp.rnr_deadline);
}

void on_ack_progress(Context& context, Qp& qp, std::uint32_t acked) {
  qp.rtt.acknowledged(qp.una, context.now);
  qp.early_retries = 0;
  qp.retrying = false;
  qp.retries_left = qp.retry_cnt;
  qp.rnr_retries_left = qp.rnr_retry;
  qp.window.on_ack(acked);
  qp.ack_deadline = kNever;
  if (qp.una != qp.psn) expect_acknowledge(context, qp);
  if (qp.sqd_pending) check_drained(context, qp);
  context.resume_send(qp);
}

void on_timer(Context& context, Qp& qp) {
  qp.wheel_deadline = kNever;
  if (qp.state == QpState::kErr) {
    poll_flush(context, qp);
    return;
  }
  if (qp.rnr_deadline <= context.now) {
    qp.rnr_deadline = kNever;
    qp.rnr_waiting = false;
    context.schedule_send(qp);
  }
  if (qp.ack_deadline <= context.now) acknowledge_timeout(context, qp);
  if (qp.pace.deadline <= context.now) {
    qp.pace.deadline = kNever;
    context.resume_send(qp);
  }
  const Nanos next = std::min({qp.rnr_deadline, qp.ack_deadline, qp.pace.deadline});
  if (next != kNever) context.arm_timer(qp, next);
}

}  // namespace uroce::proto
