// SENDs and WRITEs in sequence (IBTA vol. 1, 9.7.4).
#include "proto/rc/responder.h"
#include "proto/work/by_reference.h"
#include "proto/work/completion_counters.h"
#include "proto/work/gather.h"
#include "proto/work/message.h"
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

}  // namespace

bool obtain_receive(Context& context, Qp& qp) {
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

void execute_send(Context& context, Qp& qp, const wire::RxPacket& packet) {
  const wire::OpcodeInfo& info = *packet.info;
  if (starts(info)) qp.responder.message_bytes = 0;
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

void execute_write(Context& context, Qp& qp, const wire::RxPacket& packet, const Plan& plan) {
  const wire::OpcodeInfo& info = *packet.info;
  const std::uint32_t bytes = packet.payload_bytes;
  if (bytes != 0 && !packet.placed() && !plan.target.memory.write(0, packet.payload, bytes))
    return refuse_access(context, qp);
  if (lost_payload(context, packet)) [[unlikely]]
    return;
  qp.write = {plan.target.reth.address + bytes, plan.target.reth.rkey, plan.target.reth.length - bytes};
  qp.responder.message_bytes = bytes + (starts(info) ? 0 : qp.responder.message_bytes);
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
