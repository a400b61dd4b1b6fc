// SENDs and WRITEs in sequence (IBTA vol. 1, 9.7.4).
#include "proto/rc/responder.h"
#include "proto/work/by_reference.h"
#include "proto/work/completion_counters.h"
#include "proto/work/gather.h"
#include "proto/work/receive_queue.h"
#include "wire/extended_headers.h"

namespace uroce::proto::responder {
namespace {

/// A receive that failed before the message was stored: the peer sees what it would after such a failure of its
/// own.
void refuse_receive(Context& context, Qp& qp) {
  const std::uint8_t failure = qp.receive.failure;
  fail_receive(context, qp, failure);
  const std::uint32_t status = vendor_err_of(failure) >> 4;
  if (status == UROCE_WC_LOC_LEN_ERR) return refuse_invalid(context, qp);
  const AsyncEvent event = status == UROCE_WC_LOC_PROT_ERR ? AsyncEvent::kQpAccessError : AsyncEvent::kQpFatal;
  refuse_fatally(context, qp, wire::Nak::kRemoteOperational, event, qp.responder.epsn);
}

/// Takes the receive WQE that the message needs. False: there is none (RNR NAK) or it is malformed, and a NAK is
/// owed.
bool have_receive(Context& context, Qp& qp) {
  if (qp.responder.have_receive) return true;
  switch (take_receive(context, qp)) {
    case FetchResult::kOk: return true;
    case FetchResult::kNone:
      ++context.counters.rnr_nak_sent;
      qp.receives.ran_out = !qp.receives.shared;
      refuse(context, qp, wire::kRnrNak | qp.answers.min_rnr_timer);
      return false;
    case FetchResult::kBad: refuse_receive(context, qp); return false;
  }
  return false;
}

/// Stores a SEND's payload in the receive WQE. False: it does not fit or the memory is not writable, and a NAK is
/// owed.
bool deposit(Context& context, Qp& qp, const wire::RxPacket& packet) {
  const ReceiveWqe& wqe = qp.receive;
  switch (scatter(context, wqe.pd, wqe.sge, wqe.num_sge, qp.receives.at, packet.payload, packet.payload_bytes)) {
    case ScatterResult::kOk: return true;
    case ScatterResult::kNoRoom:
      ++context.counters.resp_local_length_error;
      fail_receive(context, qp, UROCE_FAIL_RECEIVE_LENGTH);
      refuse_invalid(context, qp);
      return false;
    case ScatterResult::kNoAccess:
      fail_receive(context, qp, UROCE_FAIL_RECEIVE_MEMORY);
      refuse_fatally(context, qp, wire::Nak::kRemoteOperational, AsyncEvent::kQpAccessError, qp.responder.epsn);
      return false;
  }
  return false;
}

/// Takes the RETH of the first packet, and checks the whole range (IBTA vol. 1, 9.7.4.1: R_Key validation). False:
/// refused.
bool begin_write(Context& context, Qp& qp, const wire::RxPacket& packet) {
  const wire::Reth reth = wire::Reth::parse(packet.bth_start + packet.info->reth);
  const bool only = packet.info->has(wire::kOnly);
  if (reth.length > kMaxMessage ||
      (only ? reth.length != packet.payload_bytes : reth.length <= packet.payload_bytes)) {
    refuse_invalid(context, qp);
    return false;
  }
  if (reth.length != 0) {  // else the R_Key is not checked (IBTA vol. 1, C9-88)
    memory::Span span;
    if (context.resolve(reth.rkey, qp.common.pd, reth.address, reth.length, memory::kRemoteWrite, span,
                        qp.common.qpn) != memory::Verdict::kOk) {
      refuse_access(context, qp);
      return false;
    }
  }
  qp.write.address = reth.address;
  qp.write.left = reth.length;
  qp.write.rkey = reth.rkey;
  qp.responder.message_bytes = 0;
  return true;
}

}  // namespace

void receive_send(Context& context, Qp& qp, const wire::RxPacket& packet) {
  const wire::OpcodeInfo& info = *packet.info;
  if (!well_formed(qp, packet, MessageInProgress::kSend)) return refuse_invalid(context, qp);
  if (starts(info)) {
    if (!have_receive(context, qp)) return;
    qp.responder.message_bytes = 0;
  }
  if (!deposit(context, qp, packet)) return;
  if (lost_payload(context, packet)) [[unlikely]] {
    qp.receives.at = locate(qp.receive.sge, qp.receive.num_sge, qp.responder.message_bytes);
    return;
  }
  qp.responder.message_bytes += packet.payload_bytes;
  if (!ends(info)) {
    qp.responder.message = MessageInProgress::kSend;
    return accept(context, qp, packet.bth.ack_req, packet.psns);
  }
  if (info.has(wire::kHasIeth)) {
    const HeldSend send{.key = wire::Ieth::parse(packet.bth_start + info.ieth).rkey,
                        .solicited = packet.bth.solicited,
                        .ack_requested = packet.bth.ack_req,
                        .psns = packet.psns};
    if (!answer_uses(qp, send.key)) return finish_invalidating_send(context, qp, send);
    qp.held = send;
    qp.responder.intake = Intake::kHeld;
    return;
  }
  qp.responder.message = MessageInProgress::kNone;
  ++qp.responder.msn;
  ++context.counters.rdma_recvs;
  deliver(context, qp, packet, UROCE_WC_RECV, qp.responder.message_bytes);
  accept(context, qp, packet.bth.ack_req, packet.psns);
}

void finish_invalidating_send(Context& context, Qp& qp, const HeldSend& send) {
  if (context.memory.invalidate(send.key, qp.common.pd, qp.common.qpn) != memory::Verdict::kOk) {
    // Class J (IBTA vol. 1, 9.9.6.3): the completion is the only report, and the requester's retries run out.
    ++context.counters.resp_remote_access_errors;
    fail_receive(context, qp, UROCE_FAIL_INVALIDATED_KEY);
    return end_silently(context, qp);
  }
  qp.responder.message = MessageInProgress::kNone;
  ++qp.responder.msn;
  ++context.counters.rdma_recvs;
  uroce_cqe cqe = context.make_cqe(qp, qp.receive.wr_id);
  cqe.opcode = UROCE_WC_RECV;
  cqe.byte_len = qp.responder.message_bytes;
  cqe.wc_flags = UROCE_WC_WITH_INV;
  cqe.imm_data = send.key.value;
  complete_receive(context, qp, cqe, send.solicited);
  accept(context, qp, send.ack_requested, send.psns);
}

void receive_write(Context& context, Qp& qp, const wire::RxPacket& packet) {
  const wire::OpcodeInfo& info = *packet.info;
  if (!may_write(qp, packet)) return refuse_invalid(context, qp);
  // The receive is taken first: without one, no part of the packet may be executed.
  if (info.has(wire::kHasImmDt) && !have_receive(context, qp)) return;
  if (starts(info) && !begin_write(context, qp, packet)) return;
  if (!fits_write(qp, packet)) return refuse_invalid(context, qp);
  if (!store(context, qp, packet)) return refuse_access(context, qp);
  if (lost_payload(context, packet)) [[unlikely]]
    return;
  qp.write.address += packet.payload_bytes;
  qp.write.left -= packet.payload_bytes;
  qp.responder.message_bytes += packet.payload_bytes;
  if (!ends(info)) {
    qp.responder.message = MessageInProgress::kWrite;
    return accept(context, qp, packet.bth.ack_req, packet.psns);
  }
  qp.responder.message = MessageInProgress::kNone;
  ++qp.responder.msn;
  ++context.counters.rx_write_requests;
  if (qp.responder.counted) count_done(qp, CountedOperation::kRemoteWrite, qp.responder.message_bytes);
  if (info.has(wire::kHasImmDt))
    deliver(context, qp, packet, UROCE_WC_RECV_RDMA_WITH_IMM, qp.responder.message_bytes);
  accept(context, qp, packet.bth.ack_req, packet.psns);
}

}  // namespace uroce::proto::responder
