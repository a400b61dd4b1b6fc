#include "proto/work/teardown.h"

#include <algorithm>
#include <utility>

#include "proto/work/receive_queue.h"
#include "proto/work/wqe.h"

namespace uroce::proto {
namespace {

constexpr Nanos kFirstLook = kMillisecond;
constexpr Nanos kSlowestLook = 32 * kMillisecond;

void flush_send_wqe(Context& context, Qp& qp, std::uint64_t wr_id, std::uint8_t opcode) {
  uroce_cqe cqe = context.make_cqe(qp, wr_id, UROCE_WC_WR_FLUSH_ERR);
  cqe.opcode = send_row(opcode).wc_opcode;
  ++context.counters.req_cqe_flush_error;
  qp.sq.publish_consumed(qp.sq_head);
  context.push(qp.send_cq, cqe, true);
}

bool flush_send_queue(Context& context, Qp& qp) {
  bool any = false;
  while (qp.sq_head != qp.sq_fetched) {
    const Wqe& wqe = qp.wqe(qp.sq_head);
    ++qp.sq_head;
    flush_send_wqe(context, qp, wqe.wr_id, wqe.opcode);
    any = true;
  }
  if (qp.sq.count() == 0) return any;
  // At most a ring's worth: a client that goes on posting waits for the next round.
  for (std::uint32_t left = qp.sq.available(); left != 0; --left) {
    uroce_sq_entry entry;
    qp.sq.copy_next(&entry, sizeof entry);
    ++qp.sq_fetched;
    ++qp.sq_head;
    flush_send_wqe(context, qp, entry.wr_id, entry.opcode);
    any = true;
  }
  qp.sq_known = 0;
  qp.sq_cursor = qp.sq_started = qp.sq_head;
  return any;
}

bool flush_receive_queue(Context& context, Qp& qp) {
  bool any = false;
  if (qp.have_receive) {
    fail_receive(context, qp, UROCE_WC_WR_FLUSH_ERR);
    any = true;
  }
  if (qp.has_srq || qp.rq.count() == 0) return any;
  for (std::uint32_t left = qp.rq.available(); left != 0; --left) {
    uroce_rq_entry entry;
    qp.rq.copy_next(&entry, sizeof entry);
    qp.receive.wr_id = entry.wr_id;
    fail_receive(context, qp, UROCE_WC_WR_FLUSH_ERR);
    any = true;
  }
  if (any) qp.rq.publish_consumed(qp.rq.next_index());
  return any;
}

}  // namespace

void detach(Context& context, Qp& qp) {
  context.remove_active(qp);
  context.remove_read_waiter(qp);
  if (qp.read_budget_used != 0) context.release_read_budget(qp, qp.read_budget_used);
  context.timers.cancel(qp.self);
  if (std::exchange(qp.watched, false)) context.ack_watch.remove(qp.self);
  qp.wheel_deadline = qp.ack_deadline = qp.rnr_deadline = kNever;
}

void enter_error(Context& context, Qp& qp) {
  if (qp.state == QpState::kErr) return;
  qp.state = QpState::kErr;
  detach(context, qp);
  qp.reads_in_flight = 0;
  qp.cost_sent = qp.cost_acked;
  qp.rnr_waiting = qp.retrying = qp.sqd_pending = false;
  qp.owed = PendingAck::kNothing;
  qp.cnp_owed = false;
  qp.resource_pending = 0;
  qp.message = MessageInProgress::kNone;
  flush_posted(context, qp);
  if (qp.has_srq && qp.type != QpType::kXrcRecv)
    context.raise(AsyncEvent::kQpLastWqeReached, qp.qpn.value, qp.owner);
  qp.flush_interval = kFirstLook;
  context.arm_timer(qp, context.now + kFirstLook);
}

void enter_send_error(Context& context, Qp& qp) {
  qp.state = QpState::kSqe;
  qp.sqd_pending = false;
  qp.send_state = SendState::kIdle;
  flush_send_queue(context, qp);
}

void fail_fatally(Context& context, Qp& qp) {
  if (qp.state == QpState::kErr) return;
  context.raise(AsyncEvent::kQpFatal, qp.qpn.value, qp.owner);
  enter_error(context, qp);
}

bool flush_posted(Context& context, Qp& qp) {
  const bool sends = flush_send_queue(context, qp);
  if (qp.state == QpState::kSqe) return sends;
  const bool receives = flush_receive_queue(context, qp);
  return sends || receives;
}

void poll_flush(Context& context, Qp& qp) {
  qp.flush_interval = flush_posted(context, qp) ? kFirstLook : std::min(qp.flush_interval * 2, kSlowestLook);
  context.arm_timer(qp, context.now + qp.flush_interval);
}

void check_drained(Context& context, Qp& qp) {
  if (qp.sq_head != qp.sq_started) return;
  qp.sqd_pending = false;
  if (qp.sqd_notify) context.raise(AsyncEvent::kSqDrained, qp.qpn.value, qp.owner);
}

}  // namespace uroce::proto
