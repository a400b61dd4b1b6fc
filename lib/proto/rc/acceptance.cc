#include "proto/rc/acceptance.h"

#include "proto/work/message.h"
#include "wire/extended_headers.h"

namespace uroce::proto {
namespace {

// ---------------------------------------------------------------- requests that are expected next

/// Whether the peer may access the range: `memory`. No key is checked for a length of 0 (IBTA vol. 1, C9-88).
bool may_access(Context& context, const Qp& qp, PdId pd, const wire::Reth& range, std::uint32_t need,
                memory::Span& memory) {
  return range.length == 0 || context.resolve(range.rkey, pd, range.address, range.length, need, memory,
                                              qp.common.qpn) == memory::Verdict::kOk;
}

Action plan_send(const Qp& qp, const wire::RxPacket& packet, Plan& plan) {
  if (!well_formed(qp, packet, MessageInProgress::kSend)) return Action::kNakInvalidRequest;
  plan.takes_receive = starts(*packet.info);
  return Action::kSend;
}

/// The first packet names the range of the whole WRITE, which is checked (IBTA vol. 1, 9.7.4.1: R_Key validation);
/// later ones continue it.
Action plan_write(Context& context, const Qp& qp, const wire::RxPacket& packet, PdId pd, Plan& plan) {
  const wire::OpcodeInfo& info = *packet.info;
  // The rights of the QP count for each packet: they may change in the middle of a message.
  if (!well_formed(qp, packet, MessageInProgress::kWrite) || (qp.responder.access & memory::kRemoteWrite) == 0)
    return Action::kNakInvalidRequest;
  plan.takes_receive = info.has(wire::kHasImmDt);
  const bool first = starts(info);
  const wire::Reth reth = first ? wire::Reth::parse(packet.bth_start + info.reth) : qp.write;
  if (reth.length > kMaxMessage || !fits_write(packet, reth.length)) return Action::kNakInvalidRequest;
  plan.target.reth = reth;
  const wire::Reth range{reth.address, reth.rkey, first ? reth.length : packet.payload_bytes};
  const bool allowed = may_access(context, qp, pd, range, memory::kRemoteWrite, plan.target.memory);
  return allowed ? Action::kWrite : Action::kNakRemoteAccess;
}

/// Whether the peer has fewer READs and atomics outstanding than it may have.
bool has_room_for_answer(const Qp& qp) {
  if (qp.answers.used != qp.answers.count) return true;
  if (qp.answers.count == 0) return false;
  const Resource& oldest = qp.answers.ring[qp.answers.next];
  return !oldest.pending || oldest.replay;
}

Action plan_read(Context& context, const Qp& qp, const wire::RxPacket& packet, PdId pd, Plan& plan) {
  const wire::Reth reth = plan.target.reth = wire::Reth::parse(packet.bth_start + packet.info->reth);
  if ((qp.responder.access & memory::kRemoteRead) == 0 || reth.length > kMaxMessage)
    return Action::kNakInvalidRequest;
  if (!may_access(context, qp, pd, reth, memory::kRemoteRead, plan.target.memory)) return Action::kNakRemoteAccess;
  return has_room_for_answer(qp) ? Action::kRead : Action::kNakInvalidRequest;
}

Action plan_atomic(Context& context, const Qp& qp, const wire::RxPacket& packet, PdId pd, Plan& plan) {
  const wire::AtomicEth request = wire::AtomicEth::parse(packet.bth_start + packet.info->atomic_eth);
  if ((qp.responder.access & memory::kRemoteAtomic) == 0 || request.address % 8 != 0)
    return Action::kNakInvalidRequest;
  const wire::Reth word{request.address, request.rkey, 8};
  if (!may_access(context, qp, pd, word, memory::kRemoteAtomic, plan.target.memory))
    return Action::kNakRemoteAccess;
  return has_room_for_answer(qp) ? Action::kAtomic : Action::kNakInvalidRequest;
}

Action plan_atomic_write(Context& context, const Qp& qp, const wire::RxPacket& packet, PdId pd, Plan& plan) {
  const wire::Reth reth = plan.target.reth = wire::Reth::parse(packet.bth_start + packet.info->reth);
  const bool allowed = (qp.responder.access & memory::kRemoteWrite) != 0;
  if (!allowed || reth.address % 8 != 0 || reth.length != 8 || packet.payload_bytes != 8)
    return Action::kNakInvalidRequest;
  if (!may_access(context, qp, pd, reth, memory::kRemoteWrite, plan.target.memory)) return Action::kNakRemoteAccess;
  return has_room_for_answer(qp) ? Action::kAtomicWrite : Action::kNakInvalidRequest;
}

Action plan_flush(Context& context, const Qp& qp, const wire::RxPacket& packet, PdId pd, Plan& plan) {
  const wire::Feth feth = wire::Feth::parse(packet.bth_start + packet.info->feth);
  plan.target.reth = wire::Reth::parse(packet.bth_start + packet.info->reth);
  constexpr std::uint32_t kGlobal = 1, kPersistent = 2, kWholeRegion = 1;
  const std::uint32_t type = feth.bits & 15, level = feth.bits >> 4 & 3;
  const std::uint32_t need = ((type & kGlobal) != 0 ? std::uint32_t{memory::kFlushGlobal} : 0u) |
                             ((type & kPersistent) != 0 ? std::uint32_t{memory::kFlushPersistent} : 0u);
  if (need == 0 || (type & ~(kGlobal | kPersistent)) != 0 || level > kWholeRegion ||
      (qp.responder.access & need) != need)
    return Action::kNakInvalidRequest;
  // Address and length mean nothing for a whole region (annex A19: FLUSH).
  const memory::Verdict verdict =
      level == kWholeRegion ? context.memory.permits(plan.target.reth.rkey, pd, need, qp.common.qpn)
                            : context.resolve(plan.target.reth.rkey, pd, plan.target.reth.address,
                                              plan.target.reth.length, need, plan.target.memory, qp.common.qpn);
  if (verdict != memory::Verdict::kOk) return Action::kNakRemoteAccess;
  return has_room_for_answer(qp) ? Action::kFlush : Action::kNakInvalidRequest;
}

/// Inlined into both callers: a call would cost each RC request 16 instructions.
[[gnu::always_inline]] inline Action plan_expected(Context& context, const Qp& qp, const wire::RxPacket& packet,
                                                   PdId pd, Plan& plan) {
  const wire::OpcodeInfo& info = *packet.info;
  if (info.has(wire::kSend)) return plan_send(qp, packet, plan);
  if (info.has(wire::kWrite)) return plan_write(context, qp, packet, pd, plan);
  // Only SENDs and WRITEs have several packets; another request must not interrupt one (IBTA vol. 1, 9.7.4.1:
  // opcode sequence check).
  if (qp.responder.message != MessageInProgress::kNone) return Action::kNakInvalidRequest;
  switch (info.operation) {
    case wire::Operation::kReadRequest: return plan_read(context, qp, packet, pd, plan);
    case wire::Operation::kCompareSwap:
    case wire::Operation::kFetchAdd: return plan_atomic(context, qp, packet, pd, plan);
    case wire::Operation::kAtomicWrite: return plan_atomic_write(context, qp, packet, pd, plan);
    case wire::Operation::kFlush: return plan_flush(context, qp, packet, pd, plan);
    default: return Action::kNakInvalidRequest;
  }
}

/// The first packet of a message names the SRQ, whose PD the message has (annex A14).
[[gnu::noinline]] Action plan_expected_xrc(Context& context, const Qp& qp, const wire::RxPacket& packet,
                                           Plan& plan) {
  if (!starts(*packet.info)) return plan_expected(context, qp, packet, qp.common.pd, plan);
  const auto xrceth = wire::XrcEth::parse(packet.bth_start + packet.info->xrceth);
  const Srq* const srq = context.srq(SrqId{xrceth.srqn});
  if (srq == nullptr || !srq->xrc || srq->xrcd != qp.settings.xrcd) return Action::kNakBadSrq;
  plan.srq = srq;
  return plan_expected(context, qp, packet, srq->pd, plan);
}

// ---------------------------------------------------------------- requests

/// A requester that probes after a silence has lost the NAK: it is repeated for packets with an acknowledge
/// request, at most once per round trip. (IBTA vol. 1, 9.7.5.2.8 sends it once.)
bool must_repeat_nak(const Context& context, const Qp& qp, const wire::RxPacket& packet) {
  return packet.bth.ack_req && context.now >= qp.next_nak &&
         qp.answers.nak_syndrome == static_cast<std::uint8_t>(wire::Nak::kSequence);
}

Action plan_request(Context& context, const Qp& qp, const wire::RxPacket& packet, Plan& plan) {
  if (qp.common.type == QpType::kXrcSend) [[unlikely]]
    return Action::kDropBadState;
  if (qp.responder.intake != Intake::kOpen) [[unlikely]]
    return qp.responder.intake == Intake::kDead ? Action::kDropBadState : Action::kDropHeld;
  const std::int32_t ahead = packet.bth.psn - qp.responder.epsn;
  if (ahead < 0) return Action::kDuplicate;
  if (ahead > 0) {
    const bool told = qp.responder.nak_sent && !must_repeat_nak(context, qp, packet);
    return told ? Action::kDropEarly : Action::kNakSequence;
  }
  if (qp.common.type == QpType::kXrcRecv) [[unlikely]]
    return plan_expected_xrc(context, qp, packet, plan);
  return plan_expected(context, qp, packet, qp.common.pd, plan);
}

// ---------------------------------------------------------------- responses

ResponsePart part_of_response(const Qp& qp, const Wqe& wqe, Psn psn, std::uint32_t psns) {
  ResponsePart part;
  part.index = psns_between(wqe.first(), psn);
  const std::uint32_t next = part.index + psns;
  part.last = next == wqe.psn_count;
  part.ends = part.last || (next & (qp.reads.chunk_at(psn) - 1)) == 0;
  part.bytes = part.last ? wqe.window_bytes() - (part.index << qp.common.mtu_shift) : psns << qp.common.mtu_shift;
  return part;
}

/// READ and atomic responses acknowledge all earlier requests, and are for the oldest one that is left then.
Action plan_answer(const Qp& qp, const wire::RxPacket& packet, Plan& plan) {
  const Psn psn = packet.bth.psn;
  std::uint32_t oldest = qp.requester.head;
  for (Psn una = qp.requester.una; una != psn; ++oldest) {
    const Wqe& wqe = qp.wqe(oldest);
    if (!wqe.is_message()) return Action::kImpliedNak;
    if (psn.before(wqe.end())) return Action::kFailKind;  // a part of it: no message is answered
    una = wqe.end();
  }
  const Wqe& wqe = qp.wqe(oldest);
  const bool atomic = packet.info->operation == wire::Operation::kAtomicAcknowledge;
  if (!wqe.has(abi::kAnswered) || atomic != (wqe.kind == Kind::kAtomic)) return Action::kFailKind;
  if (atomic) return Action::kAtomicResponse;
  plan.part = part_of_response(qp, wqe, psn, packet.psns);
  const bool right =
      packet.payload_bytes == plan.part.bytes && plan.part.ends == packet.info->has(wire::kLast | wire::kOnly);
  return right ? Action::kReadResponse : Action::kFailLength;
}

Action plan_response(const Qp& qp, const wire::RxPacket& packet, Plan& plan) {
  const Psn psn = packet.bth.psn;
  if (psn.before(qp.requester.una) || !psn.before(qp.requester.max_psn)) [[unlikely]] {
    const bool may_send = qp.common.state != QpState::kRtr && qp.common.type != QpType::kXrcRecv;
    return may_send ? Action::kDropUnexpected : Action::kDropBadState;
  }
  if (packet.info->operation == wire::Operation::kAcknowledge) return Action::kAcknowledge;
  return plan_answer(qp, packet, plan);
}

}  // namespace

void make_plan(Context& context, const Qp& qp, const wire::RxPacket& packet, Plan& plan) {
  plan.takes_receive = false;
  plan.srq = nullptr;
  plan.action =
      packet.info->has(wire::kResponse) ? plan_response(qp, packet, plan) : plan_request(context, qp, packet, plan);
}

}  // namespace uroce::proto
