#include "proto/rc/send_position.h"

#include <algorithm>

#include "proto/work/gather.h"

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

}  // namespace

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
  std::uint32_t index = end - 1;
  if (wqe.kind == Kind::kRead) {
    index &= ~(qp.reads.chunk - 1);
    if (qp.requester.una.after(wqe.first() + index)) index = psns_between(wqe.first(), qp.requester.una);
  }
  const std::uint32_t cost = cost_of(
      std::min(wqe.window_bytes(), end << qp.common.mtu_shift) - (index << qp.common.mtu_shift), end - index);
  qp.congestion.sent -= cost;
  if (wqe.has(abi::kAnswered)) {
    context.release_read_budget(qp, cost);
    if (qp.requester.reads_in_flight != 0) --qp.requester.reads_in_flight;
  }
  seek(qp, cursor, wqe.first() + index);
  qp.retransmission.cost_since_ack_request = qp.congestion.window.bytes();
  return true;
}

void skip_to_una(Qp& qp) {
  qp.congestion.sent = qp.congestion.acked;
  qp.retransmission.cost_since_ack_request = 0;
  seek(qp, qp.requester.head, qp.requester.una);
}

}  // namespace uroce::proto
