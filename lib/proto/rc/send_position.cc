#include "proto/rc/send_position.h"

#include <algorithm>

#include "proto/work/gather.h"

namespace uroce::proto {
namespace {

/// Goes on from this PSN, of that WQE.
void seek(Qp& qp, std::uint32_t cursor, Psn psn) {
  qp.sq_cursor = cursor;
  qp.psn = psn;
  qp.ack_asked = qp.una;
  qp.send_at = {};
  if (cursor == qp.sq_started) return;
  const Wqe& wqe = qp.wqe(cursor);
  const bool data = wqe.kind == Kind::kSend || wqe.kind == Kind::kWrite;
  if (data && !wqe.is_inline()) {
    qp.send_at = locate(wqe.sges(), wqe.num_sge, psns_between(wqe.first(), psn) << qp.mtu_shift);
  }
}

}  // namespace

void rewind(Context& context, Qp& qp) {
  qp.reads_in_flight = 0;
  if (qp.read_budget_used != 0) context.release_read_budget(qp, qp.read_budget_used);
  qp.ack_deadline = kNever;
  skip_to_una(qp);
}

bool rewind_last_packet(Context& context, Qp& qp) {
  const bool within = qp.sq_cursor != qp.sq_started && qp.wqe(qp.sq_cursor).first() != qp.psn;
  const std::uint32_t cursor = within ? qp.sq_cursor : qp.sq_cursor - 1;
  const Wqe& wqe = qp.wqe(cursor);
  if (wqe.status != UROCE_WC_SUCCESS) return false;
  const std::uint32_t end = psns_between(wqe.first(), qp.psn);
  std::uint32_t index = end - 1;
  if (wqe.kind == Kind::kRead) {
    index &= ~(qp.read_chunk - 1);
    if (qp.una.after(wqe.first() + index)) index = psns_between(wqe.first(), qp.una);
  }
  const bool confirmed = wqe.kind == Kind::kAtomicWrite || wqe.kind == Kind::kFlush;
  const std::uint32_t length = confirmed ? 0 : wqe.length;
  const std::uint32_t cost = cost_of(std::min(length, end << qp.mtu_shift) - (index << qp.mtu_shift), end - index);
  qp.cost_sent -= cost;
  if (wqe.kind >= Kind::kRead) {
    context.release_read_budget(qp, cost);
    if (qp.reads_in_flight != 0) --qp.reads_in_flight;
  }
  seek(qp, cursor, wqe.first() + index);
  qp.cost_since_ack_req = qp.window.bytes();
  return true;
}

void skip_to_una(Qp& qp) {
  qp.cost_sent = qp.cost_acked;
  qp.cost_since_ack_req = 0;
  seek(qp, qp.sq_head, qp.una);
}

}  // namespace uroce::proto
