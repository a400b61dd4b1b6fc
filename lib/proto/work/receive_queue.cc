#include "proto/work/receive_queue.h"

#include <algorithm>
#include <cstring>

#include "proto/work/completion_counters.h"
#include "proto/work/faults.h"
#include "proto/work/held_completions.h"

namespace uroce::proto {

namespace {

/// Copies the next entry of a ring that is not empty. Always inlined: gcc would not, in three places.
[[gnu::always_inline]] inline FetchResult copy_next(queue::WorkConsumer& ring, std::uint32_t max_sge, PdId pd,
                                                    ReceiveWqe& wqe) {
  const std::byte* const ring_entry = ring.peek_address();
  // First the header, then as many elements as the private copy of the header states: each byte is read once.
  uroce_rq_entry header;
  ring.copy_next(&header, sizeof header);
  wqe.wr_id = header.wr_id;
  wqe.num_sge = header.num_sge;
  wqe.failure = 0;
  wqe.pd = pd;
  const std::uint32_t room = (ring.stride() - static_cast<std::uint32_t>(sizeof header)) / sizeof(uroce_sge);
  const bool fits = wqe.num_sge <= std::min({max_sge, kMaxSge, room});
  if (fits) {
    const std::byte* const list = ring_entry + sizeof header;
    if (wqe.num_sge != 0) std::memcpy(wqe.sge, list, sizeof *wqe.sge);  // usually the only one
    if (wqe.num_sge > 1) std::memcpy(wqe.sge + 1, list + sizeof *wqe.sge, (wqe.num_sge - 1) * sizeof *wqe.sge);
  } else {
    wqe.num_sge = 0;
    wqe.failure = UROCE_FAIL_RECEIVE_LIST;
  }
  ring.publish_consumed(ring.next_index());
  return fits ? FetchResult::kOk : FetchResult::kBad;
}

/// An XRC target's SRQ can be destroyed in the middle of a message, and its number and its CQ's can be reused. PD
/// numbers are never reused.
Srq* live_srq(Context& context, const Qp& qp) {
  Srq* const srq = context.srq(qp.receives.srq);
  if (srq == nullptr || qp.common.type != QpType::kXrcRecv) return srq;
  return srq->pd == qp.common.pd && srq->cq == qp.receives.cq ? srq : nullptr;
}

/// Of an XRC target, or of a QP that counts its receives or has rules for them. Apart, so that other QPs do not pay
/// for what it needs.
[[gnu::noinline]] void push_specially(Context& context, Qp& qp, const uroce_cqe& cqe, bool solicited) {
  if (qp.common.type == QpType::kXrcRecv) {
    if (live_srq(context, qp) != nullptr) context.push(qp.receives.cq, cqe, solicited);
    return;
  }
  if (cqe.status != UROCE_WC_SUCCESS) {
    count_failed(qp, CountedOperation::kReceive);
    end_held(context, qp);
  } else {
    if (qp.settings.counters != nullptr) count_done(qp, CountedOperation::kReceive, cqe.byte_len);
    if (qp.settings.faults != nullptr) return hold_receive(context, qp, cqe, solicited);
  }
  context.push(qp.receives.cq, cqe, solicited);
}

void push_receive(Context& context, Qp& qp, const uroce_cqe& cqe, bool solicited) {
  if (qp.receives.special_end) return push_specially(context, qp, cqe, solicited);
  context.push(qp.receives.cq, cqe, solicited);
}

FetchResult take_from(Context& context, Qp& qp, Srq* srq) {
  if (srq == nullptr) return FetchResult::kNone;
  bool limit_reached = false;
  const FetchResult taken = srq->take(qp.receive, limit_reached);
  if (limit_reached) context.raise(AsyncEvent::kSrqLimitReached, srq->id.value, srq->owner);
  return taken;
}

FetchResult take_own(Qp& qp) {
  if (qp.receives.ring.count() == 0 || qp.receives.ring.available() == 0) return FetchResult::kNone;
  return copy_next(qp.receives.ring, qp.receives.max_sge, qp.common.pd, qp.receive);
}

/// The receive of a QP with rules.
[[gnu::noinline, gnu::cold]] FetchResult take_judged(Context& context, Qp& qp) {
  Srq* const srq = qp.receives.shared ? context.srq(qp.settings.faults->srq) : nullptr;
  const bool posted =
      srq != nullptr ? srq->posted() != 0 : qp.receives.ring.count() != 0 && qp.receives.ring.available() != 0;
  if (!posted) return FetchResult::kNone;
  const Judgement judged = judge(context, qp, FaultPlan::kReceives, true);
  if (judged.hides) return FetchResult::kNone;
  // Another QP may have taken the last one of an SRQ.
  const FetchResult taken = srq != nullptr ? take_from(context, qp, srq) : take_own(qp);
  if (taken == FetchResult::kNone) return taken;
  choose_receive(qp, judged.completion);
  if (judged.failure == 0) return taken;
  qp.receive.failure = judged.failure;
  return FetchResult::kBad;
}

/// Of an SRQ, or of a QP with rules, which has none here.
FetchResult take_diverted(Context& context, Qp& qp) {
  Srq* const srq = live_srq(context, qp);
  if (srq == nullptr) [[unlikely]]
    return qp.settings.faults != nullptr ? take_judged(context, qp) : FetchResult::kNone;
  return take_from(context, qp, srq);
}

}  // namespace

FetchResult Srq::take(ReceiveWqe& out, bool& limit_reached) {
  const base::SpinGuard guard(lock_);
  if (ring_.available() == 0) return FetchResult::kNone;
  const FetchResult taken = copy_next(ring_, max_sge, pd, out);
  limit_reached = reaches_limit();
  return taken;
}

FetchResult take_receive(Context& context, Qp& qp) {
  FetchResult taken;
  if (qp.receives.diverted) {
    taken = take_diverted(context, qp);
    if (taken == FetchResult::kNone) return taken;
  } else {
    if (qp.receives.ring.count() == 0 || qp.receives.ring.available() == 0) return FetchResult::kNone;
    taken = copy_next(qp.receives.ring, qp.receives.max_sge, qp.common.pd, qp.receive);
  }
  qp.responder.have_receive = true;
  qp.receives.at = {};
  return taken;
}

void complete_receive(Context& context, Qp& qp, uroce_cqe& cqe, bool solicited) {
  qp.responder.have_receive = false;
  push_receive(context, qp, cqe, solicited);
}

void fail_receive(Context& context, Qp& qp, std::uint8_t failure) {
  qp.responder.have_receive = false;
  uroce_cqe cqe = context.make_cqe(qp, qp.receive.wr_id, failure);
  cqe.opcode = UROCE_WC_RECV;
  context.counters.bad_wqe_sge_count += failure == UROCE_FAIL_RECEIVE_LIST;
  context.counters.bad_wqe_key += cqe.status == UROCE_WC_LOC_PROT_ERR;
  ++(cqe.status == UROCE_WC_WR_FLUSH_ERR ? context.counters.resp_cqe_flush_error : context.counters.resp_cqe_error);
  push_receive(context, qp, cqe, true);
}

bool has_room(const ReceiveWqe& wqe, std::uint64_t bytes) {
  std::uint64_t room = 0;
  for (std::uint32_t i = 0; i < wqe.num_sge; ++i) room += wqe.sge[i].length;
  return room >= bytes;
}

}  // namespace uroce::proto
