#include "proto/rc/retry.h"

#include <algorithm>
#include <array>

#include "proto/rc/requester.h"
#include "proto/work/teardown.h"
#include "proto/work/wqe.h"

namespace uroce::proto {
namespace {

/// In units of 10 us; code 0 is the longest.
constexpr std::array<std::uint32_t, 32> kRnrDelays = {
    65536, 1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,   192,
    256,   384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

Nanos timeout_of(const Qp& qp) { return Nanos{4096} << qp.ack_timeout; }

/// How long after the last progress an acknowledge is missed; kNever: not before the timeout. Patience doubles each
/// time, while it leaves as much of the timeout again.
Nanos missed_after(const Core& core, const Qp& qp) {
  const Nanos patience = std::max(qp.round_trip.patience(), core.config.least_patience);
  const Nanos next = patience << qp.early_retries, before = next - patience;
  return qp.retry_cnt != 0 && before + 2 * next <= timeout_of(qp) ? before + next : kNever;
}

/// The rounds of all QPs meet, since a worker may have to wake for each.
void send_on_patrol(Core& core, Qp& qp) {
  const Nanos grid = core.config.least_patience / 8 + 1;
  qp.on_patrol = true;
  core.patrol.add(qp.self, ((core.now + core.config.least_patience) / grid + 1) * grid);
}

void go_back(Core& core, Qp& qp) {
  requester::rewind(core, qp);
  qp.retrying = true;
  core.wake_sender(qp);
}

/// First the last packet goes out again, and a NAK or its acknowledge tells what was lost; where that is not
/// answered either, or NAKs are given already, all that is unacknowledged.
void retry_early(Core& core, Qp& qp) {
  ++core.counters.roce_adp_retrans;
  if (qp.early_retries++ == 0 && !qp.retrying && requester::step_back(core, qp)) {
    core.wake_sender(qp);
    return;
  }
  const Nanos deadline = qp.ack_deadline;
  qp.window.on_timeout();
  go_back(core, qp);
  qp.ack_deadline = deadline;
}

void acknowledge_timeout(Core& core, Qp& qp) {
  qp.ack_deadline = kNever;
  if (qp.una == qp.psn) return;
  qp.round_trip.forget();
  qp.early_retries = 0;
  ++core.counters.local_ack_timeout_err;
  ++qp.counters.local_ack_timeout_err;
  if (qp.retries_left == 0) {
    ++core.counters.retry_exceeded_err;
    fail_send(core, qp, UROCE_WC_RETRY_EXC_ERR);
    return;
  }
  --qp.retries_left;
  qp.window.on_timeout();
  go_back(core, qp);
}

}  // namespace

Nanos rnr_delay(std::uint8_t timer_code) { return kRnrDelays[timer_code & 31] * (10 * kMicrosecond); }

void complete_send(Core& core, Qp& qp) {
  const Wqe& wqe = qp.wqe(qp.sq_head);
  ++qp.sq_head;
  core.counters.rdma_sends += wqe.kind == Kind::kSend;
  if (!qp.signal_all && (wqe.flags & UROCE_SEND_SIGNALED) == 0) return;
  uroce_cqe cqe = core.make_cqe(qp, wqe.wr_id, UROCE_WC_SUCCESS);
  cqe.opcode = send_row(wqe.opcode).wc_opcode;
  cqe.byte_len = wqe.length;
  qp.sq.publish_consumed(qp.sq_head);
  core.push(qp.send_cq, cqe, false);
}

void fail_send(Core& core, Qp& qp, std::uint8_t status) {
  const Wqe& wqe = qp.wqe(qp.sq_head);
  uroce_cqe cqe = core.make_cqe(qp, wqe.wr_id, status);
  cqe.opcode = send_row(wqe.opcode).wc_opcode;
  cqe.vendor_err = status;
  ++qp.sq_head;
  qp.sq.publish_consumed(qp.sq_head);
  ++core.counters.req_cqe_error;
  core.counters.bad_wqe_key += status == UROCE_WC_LOC_PROT_ERR;
  core.counters.bad_wqe_bind += status == UROCE_WC_MW_BIND_ERR;
  core.push(qp.send_cq, cqe, true);
  if (qp.type == QpType::kUc || qp.type == QpType::kUd) {
    enter_send_error(core, qp);
  } else {
    enter_error(core, qp);
  }
}

void expect_acknowledge(Core& core, Qp& qp) {
  if (qp.ack_timeout == 0) return;
  qp.ack_deadline = core.now + timeout_of(qp);
  core.want_timer(qp, qp.ack_deadline);
  if (!qp.on_patrol && qp.round_trip.known()) send_on_patrol(core, qp);
}

void on_patrol(Core& core, Qp& qp) {
  qp.on_patrol = false;
  const Nanos limit = missed_after(core, qp);
  if (qp.ack_deadline == kNever || limit == kNever) return;
  const Nanos waited = core.now + timeout_of(qp) - qp.ack_deadline;
  if (qp.una != qp.psn && waited >= limit) retry_early(core, qp);
  send_on_patrol(core, qp);
}

void retry_from_una(Core& core, Qp& qp) {
  if (qp.retrying) return;
  if (qp.retries_left == 0) {
    ++core.counters.retry_exceeded_err;
    fail_send(core, qp, UROCE_WC_RETRY_EXC_ERR);
    return;
  }
  --qp.retries_left;
  qp.round_trip.forget();
  qp.window.on_loss();
  go_back(core, qp);
}

void wait_for_receiver(Core& core, Qp& qp, std::uint8_t timer_code) {
  if (qp.rnr_waiting) return;
  if (qp.rnr_retries_left == 0) {
    ++core.counters.rnr_nak_retry_err;
    ++qp.counters.rnr_nak_retry_err;
    fail_send(core, qp, UROCE_WC_RNR_RETRY_EXC_ERR);
    return;
  }
  if (qp.rnr_retry != 7) --qp.rnr_retries_left;
  qp.round_trip.forget();
  requester::rewind(core, qp);
  qp.rnr_waiting = true;
  qp.send_state = SendState::kBlocked;
  qp.rnr_deadline = core.now + rnr_delay(timer_code);
  core.want_timer(qp, qp.rnr_deadline);
}

void progressed(Core& core, Qp& qp, std::uint32_t acked) {
  qp.round_trip.acknowledged(qp.una, core.now);
  qp.early_retries = 0;
  qp.retrying = false;
  qp.retries_left = qp.retry_cnt;
  qp.rnr_retries_left = qp.rnr_retry;
  qp.window.on_ack(acked);
  qp.ack_deadline = kNever;
  if (qp.una != qp.psn) expect_acknowledge(core, qp);
  if (qp.sqd_pending) check_drained(core, qp);
  requester::resume(core, qp);
}

void on_timer(Core& core, Qp& qp) {
  qp.wheel_deadline = kNever;
  if (qp.state == QpState::kErr) {
    poll_flush(core, qp);
    return;
  }
  if (qp.rnr_deadline <= core.now) {
    qp.rnr_deadline = kNever;
    qp.rnr_waiting = false;
    core.wake_sender(qp);
  }
  if (qp.ack_deadline <= core.now) acknowledge_timeout(core, qp);
  if (qp.pace.deadline <= core.now) {
    qp.pace.deadline = kNever;
    requester::resume(core, qp);
  }
  const Nanos next = std::min({qp.rnr_deadline, qp.ack_deadline, qp.pace.deadline});
  if (next != kNever) core.want_timer(qp, next);
}

}  // namespace uroce::proto
