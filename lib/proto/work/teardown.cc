#include "proto/work/teardown.h"

#include <algorithm>
#include <utility>

#include "proto/work/completion_counters.h"
#include "proto/work/held_completions.h"
#include "proto/work/receive_queue.h"
#include "proto/work/wqe.h"

namespace uroce::proto {
namespace {

constexpr Nanos kFirstLook = kMillisecond;
constexpr Nanos kSlowestLook = 32 * kMillisecond;

void flush_send_wqe(Context& context, Qp& qp, std::uint64_t wr_id, std::uint8_t opcode) {
  uroce_cqe cqe = context.make_cqe(qp, wr_id, UROCE_FAIL_FLUSHED);
  cqe.opcode = abi::operation_of(opcode).wc_opcode;
  ++context.counters.req_cqe_flush_error;
  publish_free(qp);
  count_failed(qp, counted_as(opcode));
  context.push(qp.requester.cq, cqe, true);
}

bool flush_send_queue(Context& context, Qp& qp) {
  bool any = false;
  end_held(context, qp);
  while (qp.requester.head != qp.requester.fetched) {
    const Wqe& wqe = qp.wqe(qp.requester.head);
    ++qp.requester.head;
    flush_send_wqe(context, qp, wqe.wr_id, wqe.opcode);
    any = true;
  }
  if (qp.requester.ring.count() == 0) return any;
  // At most a ring's worth: a client that keeps posting waits for the next look.
  for (std::uint32_t left = qp.requester.ring.available(); left != 0; --left) {
    uroce_sq_entry entry;
    qp.requester.ring.copy_next(&entry, sizeof entry);
    ++qp.requester.fetched;
    ++qp.requester.head;
    flush_send_wqe(context, qp, entry.wr_id, entry.opcode);
    any = true;
  }
  qp.requester.known = 0;
  qp.requester.cursor = qp.requester.started = qp.requester.head;
  return any;
}

bool flush_receive_queue(Context& context, Qp& qp) {
  bool any = false;
  if (qp.responder.have_receive) {
    fail_receive(context, qp, UROCE_FAIL_FLUSHED);
    any = true;
  }
  if (qp.receives.shared || qp.receives.ring.count() == 0) return any;
  for (std::uint32_t left = qp.receives.ring.available(); left != 0; --left) {
    uroce_rq_entry entry;
    qp.receives.ring.copy_next(&entry, sizeof entry);
    qp.receive.wr_id = entry.wr_id;
    fail_receive(context, qp, UROCE_FAIL_FLUSHED);
    any = true;
  }
  if (any) qp.receives.ring.publish_consumed(qp.receives.ring.next_index());
  return any;
}

}  // namespace

void detach(Context& context, Qp& qp) {
  qp.life = qp.answers_life = ++context.lives;
  context.remove_active(qp);
  context.remove_read_waiter(qp);
  if ((qp.reads.reserved | qp.reads.reserved_before) != 0) context.release_read_budget(qp);
  context.timers.cancel(qp.common.self);
  if (std::exchange(qp.retransmission.watched, false)) context.ack_watch.remove(qp.common.self);
  qp.retransmission.wheel_deadline = kNever;
  qp.clear_deadlines();
}

void enter_error(Context& context, Qp& qp) {
  if (qp.common.state == QpState::kErr) return;
  qp.common.state = QpState::kErr;
  // What it has answered is under way, as on a wire. Commands find nothing of it left (WorkerLoop::step()).
  const std::uint32_t answers = qp.answers_life;
  detach(context, qp);
  qp.answers_life = answers;
  qp.requester.reads_in_flight = 0;
  qp.congestion.take_back_all();
  qp.retransmission.recovering = Recovering::kNo;
  qp.requester.draining = false;
  qp.responder.owed = PendingAck::kNothing;
  qp.responder.cnp_owed = false;
  qp.responder.answers_pending = 0;
  qp.responder.message = MessageInProgress::kNone;
  flush_posted(context, qp);
  report_flushed(context, qp);
  if (qp.receives.shared && qp.common.type != QpType::kXrcRecv)
    context.raise(AsyncEvent::kQpLastWqeReached, qp.common.qpn.value, qp.settings.owner);
  qp.flush_interval = kFirstLook;
  context.set_deadline(qp, Deadline::kFlush, context.now + kFirstLook);
}

void enter_send_error(Context& context, Qp& qp) {
  qp.common.state = QpState::kSqe;
  qp.requester.draining = false;
  qp.common.send_state = SendState::kIdle;
  flush_send_queue(context, qp);
  report_flushed(context, qp);
}

void fail_fatally(Context& context, Qp& qp) {
  if (qp.common.state == QpState::kErr) return;
  context.raise(AsyncEvent::kQpFatal, qp.common.qpn.value, qp.settings.owner);
  context.report(qp, 0, AsyncEvent::kQpFatal);
  enter_error(context, qp);
}

bool flush_posted(Context& context, Qp& qp) {
  const bool sends = flush_send_queue(context, qp);
  if (qp.common.state == QpState::kSqe) return sends;
  const bool receives = flush_receive_queue(context, qp);
  return sends || receives;
}

void poll_flush(Context& context, Qp& qp) {
  qp.flush_interval = flush_posted(context, qp) ? kFirstLook : std::min(qp.flush_interval * 2, kSlowestLook);
  context.set_deadline(qp, Deadline::kFlush, context.now + qp.flush_interval);
}

void check_drained(Context& context, Qp& qp) {
  if (qp.requester.head != qp.requester.started) return;
  qp.requester.draining = false;
  if (qp.requester.drain_notify) context.raise(AsyncEvent::kSqDrained, qp.common.qpn.value, qp.settings.owner);
}

void check_sent(Context& context, Qp& qp) {
  if (static_cast<std::int32_t>(qp.requester.cursor - qp.report_sent_at) >= 0) report_flushed(context, qp);
}

void report_flushed(Context& context, Qp& qp) {
  if (!std::exchange(qp.requester.report_sent, false)) return;
  context.raise(AsyncEvent::kDatagramsSent, qp.common.qpn.value, qp.settings.owner);
}

}  // namespace uroce::proto
