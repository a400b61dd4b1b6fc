#include "proto/rc/responder.h"

#include <cstring>

#include "proto/work/teardown.h"

namespace uroce::proto::responder {
namespace {

void receive_in_sequence(Core& core, Qp& qp, const wire::RxPacket& packet) {
  const wire::OpcodeInfo& info = *packet.info;
  if (info.has(wire::kSend)) return receive_send(core, qp, packet);
  if (info.has(wire::kWrite)) return receive_write(core, qp, packet);
  // A READ or atomic may not come in the middle of a message.
  if (qp.message != Message::kNone) return refuse_invalid(core, qp);
  if (info.operation == wire::Operation::kReadRequest) return receive_read(core, qp, packet);
  if (info.operation == wire::Operation::kCompareSwap || info.operation == wire::Operation::kFetchAdd) {
    return receive_atomic(core, qp, packet);
  }
  if (info.operation == wire::Operation::kAtomicWrite) return receive_atomic_write(core, qp, packet);
  if (info.operation == wire::Operation::kFlush) return receive_flush(core, qp, packet);
  refuse_invalid(core, qp);
}

/// Acknowledged again, not executed again. The newest PSN is named, unless that would pass a READ or atomic whose
/// answer the requester may still lack.
void repeat_message(Core& core, Qp& qp, Psn psn) {
  core.activate(qp);
  const bool newest = !resource_after(qp, psn);
  switch (qp.owed) {
    case Owed::kNothing:
      qp.owed = Owed::kAck;
      qp.owed_newest = newest;
      qp.owed_psn = psn;
      return;
    case Owed::kAck:
      ++core.counters.ack_deferred;
      qp.owed_newest |= newest;
      if (psn.after(qp.owed_psn)) qp.owed_psn = psn;
      return;
    case Owed::kNak: return;  // acknowledges all before it
  }
}

void receive_duplicate(Core& core, Qp& qp, const wire::RxPacket& packet) {
  ++core.counters.duplicate_request;
  ++qp.counters.duplicate_request;
  if (packet.info->has(wire::kSend | wire::kWrite)) return repeat_message(core, qp, packet.bth.psn);
  if (packet.info->operation == wire::Operation::kReadRequest) return repeat_read(core, qp, packet);
  if (packet.info->has(wire::kHasAtomicEth)) return repeat_atomic(core, qp, packet);
  repeat_confirmation(core, qp, packet);
}

/// Sends the ACK or NAK that is owed.
void send_owed(Core& core, Qp& qp, TxBurst& burst) {
  const bool ack = qp.owed == Owed::kAck;
  const Psn psn = ack && qp.owed_newest ? qp.epsn - 1 : qp.owed_psn;
  const wire::Bth bth{.opcode = wire::opcode(qp.service, wire::Operation::kAcknowledge),
                      .pkey = qp.pkey,
                      .dest_qpn = qp.dest_qpn,
                      .psn = psn};
  if (send_acknowledge(core, burst, qp.path, bth, ack ? wire::kAckUnlimited : qp.nak_syndrome, qp.msn)) {
    ++qp.counters.sent_pkts;
    core.counters.acks_sent += ack;
  }
  qp.owed = Owed::kNothing;
}

void send_cnp(Core& core, Qp& qp, TxBurst& burst) {
  const wire::Bth bth{.opcode = wire::kCnpOpcode, .pkey = qp.pkey, .becn = true, .dest_qpn = qp.dest_qpn};
  base::Frame& frame = burst.frames[burst.count];
  PacketBuilder builder(core.crc, core.config.offload_ip_checksum);
  if (builder.start(frame, qp.path, bth, wire::kCnpReservedBytes, 0)) {
    std::memset(builder.extended(), 0, wire::kCnpReservedBytes);
    builder.seal();
    builder.finish();
    ++burst.count;
    ++core.counters.sent_pkts;
    ++qp.counters.sent_pkts;
    core.counters.sent_bytes += frame.length;
    ++core.counters.np_cnp_sent;
  }
  qp.cnp_owed = false;
}

void finish_fatally(Core& core, Qp& qp) {
  core.raise(static_cast<AsyncEvent>(qp.fatal_event), qp.qpn.value, qp.owner);
  enter_error(core, qp);
}

}  // namespace

void receive(Core& core, Qp& qp, const wire::RxPacket& packet) {
  if (qp.responder_dead) {
    ++core.counters.drop_bad_state;
    return;
  }
  const std::int32_t ahead = packet.bth.psn - qp.epsn;
  if (ahead == 0) [[likely]] {
    receive_in_sequence(core, qp, packet);
  } else if (ahead < 0) {
    receive_duplicate(core, qp, packet);
  } else {
    ++core.counters.out_of_sequence;
    ++qp.counters.out_of_sequence;
    if (!qp.nak_sent) refuse(core, qp, static_cast<std::uint8_t>(wire::Nak::kSequence));
  }
}

void accept(Core& core, Qp& qp, bool ack_requested) {
  ++qp.epsn;
  if (qp.nak_sent) {
    // Back in sequence; a NAK that isn't out yet would name what has come.
    qp.nak_sent = false;
    if (qp.owed == Owed::kNak) {
      qp.owed = Owed::kAck;
      qp.owed_newest = true;
      core.activate(qp);
    }
  }
  if (!ack_requested) return;
  core.counters.ack_deferred += qp.owed == Owed::kAck;
  qp.owed = Owed::kAck;
  qp.owed_newest = true;
  qp.owed_psn = qp.epsn - 1;
  core.activate(qp);
}

void refuse(Core& core, Qp& qp, std::uint8_t syndrome) {
  qp.nak_sent = true;
  qp.owed = Owed::kNak;
  qp.nak_syndrome = syndrome;
  qp.owed_psn = qp.epsn;
  core.activate(qp);
}

void refuse_fatally(Core& core, Qp& qp, wire::Nak code, AsyncEvent event, Psn psn) {
  qp.responder_dead = true;
  qp.fatal_event = static_cast<std::uint8_t>(event);
  qp.owed = Owed::kNak;
  qp.nak_syndrome = static_cast<std::uint8_t>(code);
  qp.owed_psn = psn;
  core.activate(qp);
}

void receive_xrc(Core& core, Qp& qp, const wire::RxPacket& packet) {
  if (!qp.responder_dead && packet.bth.psn == qp.epsn && starts(*packet.info)) {
    const Srq* const srq = core.srq(SrqId{wire::XrcEth::parse(packet.bth_start + packet.info->xrceth).srqn});
    if (srq == nullptr || !srq->xrc || srq->xrcd != qp.xrcd) {
      ++core.counters.drop_bad_srq;
      return refuse_invalid(core, qp);
    }
    qp.srq = srq->id;
    qp.pd = srq->pd;
    qp.recv_cq = srq->cq;
  }
  receive(core, qp, packet);
}

bool send_acknowledge(Core& core, TxBurst& burst, const wire::FrameTemplate& path, const wire::Bth& bth,
                      std::uint8_t syndrome, Msn msn) {
  base::Frame& frame = burst.frames[burst.count];
  PacketBuilder builder(core.crc, core.config.offload_ip_checksum);
  if (!builder.start(frame, path, bth, wire::Aeth::kBytes, 0)) return false;
  emit_aeth(builder.extended(), syndrome, msn);
  builder.seal();
  builder.finish();
  ++burst.count;
  ++core.counters.sent_pkts;
  core.counters.sent_bytes += frame.length;
  return true;
}

void note_congestion(Core& core, Qp& qp) {
  ++core.counters.np_ecn_marked_roce_packets;
  // A datagram's sender has no flow that could be slowed.
  if (qp.type == QpType::kUd || core.now < qp.next_cnp) return;
  qp.next_cnp = core.now + kCnpInterval;
  qp.cnp_owed = true;
  core.activate(qp);
}

bool run(Core& core, Qp& qp, TxBurst& burst, std::uint32_t& budget) {
  if (qp.cnp_owed) {
    if (budget == 0 || burst.full()) return true;
    send_cnp(core, qp, burst);
    --budget;
  }
  if (qp.resource_pending != 0 && run_resources(core, qp, burst, budget)) return true;
  if (qp.owed == Owed::kNothing) return false;
  if (budget == 0 || burst.full()) return true;
  send_owed(core, qp, burst);
  --budget;
  if (qp.responder_dead) finish_fatally(core, qp);
  return false;
}

}  // namespace uroce::proto::responder
