#include "proto/work/send_completion.h"

#include "proto/work/completion_counters.h"
#include "proto/work/held_completions.h"
#include "proto/work/latency.h"
#include "proto/work/teardown.h"
#include "proto/work/wqe.h"

namespace uroce::proto {
namespace {

void push_sent(Context& context, Qp& qp, const Wqe& wqe) {
  publish_free(qp);
  context.push(qp.requester.cq, cqe_of(context, qp, wqe), false);
}

/// Of a QP that counts, measures, holds back or signals more than others do (Requester::reports). Apart, so that
/// other QPs do not pay for what it needs.
[[gnu::noinline]] void complete_specially(Context& context, Qp& qp, const Wqe& wqe) {
  if ((qp.requester.reports & kTimedReports) != 0) end_latency(context, qp);
  if ((qp.requester.reports & kCountedReports) != 0) {
    publish_free(qp);  // who sees the count may post as much
    count_done(qp, counted_as(wqe.opcode), wqe.length);
  }
  if ((wqe.flags & UROCE_SEND_SIGNALED) == 0 && (qp.requester.reports & kAllReports) == 0) return;
  if ((qp.requester.reports & kRuledReports) != 0) return hold_send(context, qp);
  push_sent(context, qp, wqe);
}

}  // namespace

void complete_send(Context& context, Qp& qp) {
  const Wqe& wqe = qp.wqe(qp.requester.head);
  ++qp.requester.head;
  context.counters.rdma_sends += wqe.kind == Kind::kSend;
  if (qp.requester.reports != 0) return complete_specially(context, qp, wqe);
  if ((wqe.flags & UROCE_SEND_SIGNALED) != 0) push_sent(context, qp, wqe);
}

void fail_send(Context& context, Qp& qp, std::uint8_t failure) {
  end_held(context, qp);
  const Wqe& wqe = qp.wqe(qp.requester.head);
  uroce_cqe cqe = context.make_cqe(qp, wqe.wr_id, failure);
  cqe.opcode = abi::operation_of(wqe.opcode).wc_opcode;
  ++qp.requester.head;
  publish_free(qp);
  count_failed(qp, counted_as(wqe.opcode));
  ++context.counters.req_cqe_error;
  context.counters.bad_wqe_key += cqe.status == UROCE_WC_LOC_PROT_ERR;
  context.counters.bad_wqe_bind += cqe.status == UROCE_WC_MW_BIND_ERR;
  context.push(qp.requester.cq, cqe, true);
  if (cqe.status != UROCE_WC_WR_FLUSH_ERR) context.report(qp, failure);
  const bool unreliable = qp.common.type == QpType::kUc || qp.common.type == QpType::kUd;
  if (unreliable && cqe.status != UROCE_WC_WR_FLUSH_ERR) {
    enter_send_error(context, qp);
  } else {
    enter_error(context, qp);
  }
}

}  // namespace uroce::proto
