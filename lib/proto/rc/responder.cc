#include "proto/rc/responder.h"

#include <cstring>

#include "base/probe.h"
#include "proto/work/teardown.h"
#include "wire/extended_headers.h"
#include "wire/frame_template.h"

namespace uroce::proto::responder {
namespace {

/// A duplicate SEND or WRITE is acknowledged again and not executed (IBTA vol. 1, 9.7.5, C9-105). The
/// ACK names the newest PSN, unless that would acknowledge a READ or atomic whose response the requester may still
/// lack.
void repeat_message(Context& context, Qp& qp, Psn psn) {
  context.activate(qp);
  const bool newest = !resource_after(qp, psn);
  switch (qp.responder.owed) {
    case PendingAck::kNothing:
      qp.responder.owed = PendingAck::kAck;
      qp.responder.owed_newest = newest;
      qp.responder.owed_psn = psn;
      return;
    case PendingAck::kAck:
      ++context.counters.ack_deferred;
      qp.responder.owed_newest |= newest;
      if (psn.after(qp.responder.owed_psn)) qp.responder.owed_psn = psn;
      return;
    case PendingAck::kNak:
    case PendingAck::kEnd: return;  // a NAK acknowledges all earlier PSNs
  }
}

void receive_duplicate(Context& context, Qp& qp, const wire::RxPacket& packet) {
  ++context.counters.duplicate_request;
  ++qp.counters.duplicate_request;
  if (packet.info->has(wire::kSend | wire::kWrite)) return repeat_message(context, qp, packet.bth.psn);
  if (packet.info->operation == wire::Operation::kReadRequest) return repeat_read(context, qp, packet);
  if (packet.info->has(wire::kHasAtomicEth)) return repeat_atomic(context, qp, packet);
  if (packet.info->has(wire::kHasReth)) return repeat_confirmation(context, qp, packet);
  ++context.counters.drop_unexpected;  // a duplicate of a request that was refused
}

void refuse_sequence(Context& context, Qp& qp) {
  const auto& rtt = qp.retransmission.rtt;
  qp.next_nak = context.now + (rtt.known() ? rtt.retransmit_timeout() : kNakInterval);
  refuse(context, qp, static_cast<std::uint8_t>(wire::Nak::kSequence));
}

/// A request that comes after a SEND which waits for answers.
void hold_up(Context& context, Qp& qp, const wire::RxPacket& packet) {
  const std::int32_t ahead = packet.bth.psn - qp.responder.epsn;
  if (ahead == 0) qp.held.ack_requested |= packet.bth.ack_req;
  if (ahead > 0) qp.held.overtaken = true;
  ++context.counters.drop_unexpected;
}

void count_early(Context& context, Qp& qp) {
  ++context.counters.out_of_sequence;
  ++qp.counters.out_of_sequence;
}

/// PD, SRQ and CQ of a message to an XRC target are those of the SRQ that its first packet names (annex A14).
void use_srq(Context& context, Qp& qp, const Srq& srq) {
  qp.receives.srq = srq.id;
  qp.common.pd = srq.pd;
  context.note(srq.pd.value);
  qp.receives.cq = srq.cq;
}

/// The answers before a SEND with invalidate have left: it is executed, and requests that it held up are asked for
/// again.
void resume_send_after_answers(Context& context, Qp& qp) {
  qp.responder.intake = Intake::kOpen;
  finish_invalidating_send(context, qp, qp.held);
  if (qp.held.overtaken && qp.responder.intake == Intake::kOpen) refuse_sequence(context, qp);
}

/// Sends the ACK or NAK that is owed.
void send_owed(Context& context, Qp& qp, TxBurst& burst) {
  const bool ack = qp.responder.owed == PendingAck::kAck;
  const Psn psn = ack && qp.responder.owed_newest ? qp.responder.epsn - 1 : qp.responder.owed_psn;
  const wire::Bth bth{.opcode = wire::opcode(qp.common.service, wire::Operation::kAcknowledge),
                      .pkey = qp.common.pkey,
                      .dest_qpn = qp.common.dest_qpn,
                      .psn = psn};
  if (send_acknowledge(context, burst, qp.path, bth, ack ? ack_syndrome(qp) : qp.answers.nak_syndrome,
                       qp.responder.msn)) {
    ++qp.counters.sent_pkts;
    context.counters.acks_sent += ack;
    if (!ack) context.note_event(qp, QpEventType::kNakSent, psn, qp.answers.nak_syndrome);
  }
  qp.responder.owed = PendingAck::kNothing;
}

void send_cnp(Context& context, Qp& qp, TxBurst& burst) {
  const wire::Bth bth{
      .opcode = wire::kCnpOpcode, .pkey = qp.common.pkey, .becn = true, .dest_qpn = qp.common.dest_qpn};
  base::Frame& frame = burst.frames[burst.count];
  PacketBuilder builder(context.crc, context.config.offload_ip_checksum);
  if (builder.start(frame, qp.path, bth, wire::kCnpReservedBytes, 0, false)) {
    std::memset(builder.extended(), 0, wire::kCnpReservedBytes);
    builder.seal();
    builder.finish();
    ++burst.count;
    ++context.counters.sent_pkts;
    ++qp.counters.sent_pkts;
    context.counters.sent_bytes += frame.length;
    ++context.counters.np_cnp_sent;
  }
  qp.responder.cnp_owed = false;
}

void finish_fatally(Context& context, Qp& qp) {
  const auto event = static_cast<AsyncEvent>(qp.answers.fatal_event);
  if (qp.answers.fatal_event != 0) context.raise(event, qp.common.qpn.value, qp.settings.owner);
  context.report(qp, qp.answers.fatal_event != 0 ? std::uint8_t{0} : std::uint8_t{UROCE_FAIL_INVALIDATED_KEY},
                 event);
  enter_error(context, qp);
}

}  // namespace

void receive(Context& context, Qp& qp, const wire::RxPacket& packet, const Plan& plan) {
  if (plan.srq != nullptr) [[unlikely]]
    use_srq(context, qp, *plan.srq);
  if (plan.takes_receive && !obtain_receive(context, qp)) return;
  switch (plan.action) {
    case Action::kSend: return execute_send(context, qp, packet);
    case Action::kWrite: return execute_write(context, qp, packet, plan);
    case Action::kRead: return execute_read(context, qp, plan);
    case Action::kAtomic: return execute_atomic(context, qp, packet, plan);
    case Action::kAtomicWrite: return execute_atomic_write(context, qp, packet, plan);
    case Action::kFlush: return execute_flush(context, qp, plan);
    case Action::kNakBadSrq: ++context.counters.drop_bad_srq; return refuse_invalid(context, qp);
    case Action::kNakInvalidRequest: return refuse_invalid(context, qp);
    case Action::kNakRemoteAccess: return refuse_access(context, qp);
    case Action::kDuplicate: return receive_duplicate(context, qp, packet);
    case Action::kNakSequence: count_early(context, qp); return refuse_sequence(context, qp);
    case Action::kDropEarly: return count_early(context, qp);
    case Action::kDropHeld: return hold_up(context, qp, packet);
    case Action::kDropBadState: ++context.counters.drop_bad_state; return;
    default: return;  // responses are the completer's
  }
}

void accept(Context& context, Qp& qp, bool ack_requested, std::uint32_t psns) {
  qp.responder.epsn = qp.responder.epsn + psns;
  if (qp.responder.nak_sent) {
    // Back in sequence: a NAK that was not sent yet would name a PSN that has arrived.
    qp.responder.nak_sent = false;
    if (qp.responder.owed == PendingAck::kNak) {
      qp.responder.owed = PendingAck::kAck;
      qp.responder.owed_newest = true;
      context.activate(qp);
    }
  }
  if (!ack_requested) return;
  context.counters.ack_deferred += qp.responder.owed == PendingAck::kAck;
  qp.responder.owed = PendingAck::kAck;
  qp.responder.owed_newest = true;
  qp.responder.owed_psn = qp.responder.epsn - 1;
  context.activate(qp);
}

void refuse(Context& context, Qp& qp, std::uint8_t syndrome) {
  qp.responder.nak_sent = true;
  qp.responder.owed = PendingAck::kNak;
  qp.answers.nak_syndrome = syndrome;
  qp.responder.owed_psn = qp.responder.epsn;
  context.activate(qp);
}

void refuse_fatally(Context& context, Qp& qp, wire::Nak code, AsyncEvent event, Psn psn) {
  qp.responder.intake = Intake::kDead;
  qp.answers.fatal_event = static_cast<std::uint8_t>(event);
  qp.responder.owed = PendingAck::kNak;
  qp.answers.nak_syndrome = static_cast<std::uint8_t>(code);
  qp.responder.owed_psn = psn;
  context.activate(qp);
}

void end_silently(Context& context, Qp& qp) {
  qp.responder.intake = Intake::kDead;
  qp.answers.fatal_event = 0;
  // Earlier requests are acknowledged if that is owed, by an ACK or by a sequence NAK that has not left.
  if (qp.responder.owed == PendingAck::kNothing) {
    qp.responder.owed = PendingAck::kEnd;
  } else if (qp.responder.owed == PendingAck::kNak) {
    qp.responder.owed = PendingAck::kAck;
    qp.responder.owed_newest = true;
  }
  context.activate(qp);
}

bool send_acknowledge(Context& context, TxBurst& burst, const wire::FrameTemplate& path, const wire::Bth& bth,
                      std::uint8_t syndrome, Msn msn) {
  base::Frame& frame = burst.frames[burst.count];
  PacketBuilder builder(context.crc, context.config.offload_ip_checksum);
  if (!builder.start(frame, path, bth, wire::Aeth::kBytes, 0, false)) return false;
  emit_aeth(builder.extended(), syndrome, msn);
  builder.seal();
  builder.finish();
  ++burst.count;
  ++context.counters.sent_pkts;
  context.counters.sent_bytes += frame.length;
  return true;
}

void note_congestion(Context& context, Qp& qp, const wire::RxPacket& packet) {
  ++context.counters.np_ecn_marked_roce_packets;
  UROCE_PROBE(mark, qp.common.qpn.value, 0);
  const wire::OpcodeInfo& info = *packet.info;
  // The sender of a datagram has no flow to slow down, and a CNP for an acknowledge would slow its sender's
  // requests.
  if (qp.common.type == QpType::kUd || (info.has(wire::kResponse) && !info.has(wire::kRead))) return;
  // The requester's window limits what READs bring; the CNP serves peers that pace their responses.
  if (info.has(wire::kResponse)) context.shrink_window(qp, CongestionCause::kMarked);
  if (context.now < qp.next_cnp) return;
  qp.next_cnp = context.now + kCnpInterval;
  qp.responder.cnp_owed = true;
  context.activate(qp);
}

bool run(Context& context, Qp& qp, TxBurst& burst, std::uint32_t& budget) {
  if (qp.responder.cnp_owed) {
    if (budget == 0 || burst.full()) return true;
    send_cnp(context, qp, burst);
    --budget;
  }
  if (qp.responder.answers_pending != 0 && run_resources(context, qp, burst, budget)) return true;
  if (qp.responder.intake != Intake::kOpen) [[unlikely]] {
    if (qp.responder.intake == Intake::kHeld) resume_send_after_answers(context, qp);
    if (qp.responder.owed == PendingAck::kEnd) {
      finish_fatally(context, qp);
      return false;
    }
  }
  if (qp.responder.owed == PendingAck::kNothing) return false;
  if (budget == 0 || burst.full()) return true;
  send_owed(context, qp, burst);
  --budget;
  if (qp.responder.intake == Intake::kDead) finish_fatally(context, qp);
  return false;
}

}  // namespace uroce::proto::responder
