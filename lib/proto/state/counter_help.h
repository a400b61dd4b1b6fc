// The meaning of the transport's counters.
#pragma once

#include "base/counter_info.h"
#include "proto/state/counters.h"

namespace uroce::proto {

// clang-format off
#define UROCE_HELP(name, help) {#name, &Counters::name, help}
inline constexpr CounterInfo<Counters> kCounterHelp[] = {
    UROCE_HELP(sent_pkts, "RoCE packets that QPs sent."),
    UROCE_HELP(rcvd_pkts, "RoCE packets that QPs accepted."),
    UROCE_HELP(sent_bytes, "Bytes of sent RoCE packets, from the Ethernet header to the ICRC."),
    UROCE_HELP(rcvd_bytes, "Payload bytes of accepted RoCE packets."),
    UROCE_HELP(rdma_sends, "SENDs that completed at the requester."),
    UROCE_HELP(rdma_recvs, "Messages that completed a receive."),
    UROCE_HELP(rx_write_requests, "RDMA WRITEs that the responder has executed."),
    UROCE_HELP(rx_read_requests, "RDMA READ requests that the responder accepted."),
    UROCE_HELP(rx_atomic_requests, "Atomic requests that the responder executed."),
    UROCE_HELP(duplicate_request, "Requests with a PSN that the responder has had: retransmissions or duplicates."),
    UROCE_HELP(out_of_sequence, "Requests with a PSN after the expected one: loss or reordering."),
    UROCE_HELP(packet_seq_err, "NAKs for a PSN sequence error that the requester received."),
    UROCE_HELP(implied_nak_seq_err, "Lost responses that the requester noticed by a later response."),
    UROCE_HELP(roce_adp_retrans, "Retransmissions that began before the acknowledge timeout."),
    UROCE_HELP(rnr_nak_sent, "RNR NAKs sent: no receive was posted."),
    UROCE_HELP(rnr_nak_rcvd, "RNR NAKs received: the peer had no receive posted."),
    UROCE_HELP(rnr_nak_retry_err, "Work requests that failed after all RNR retries."),
    UROCE_HELP(local_ack_timeout_err, "Acknowledge timeouts."),
    UROCE_HELP(retry_exceeded_err, "Work requests that failed after all retries."),
    UROCE_HELP(retransmitted_pkts, "Packets that were sent again."),
    UROCE_HELP(ack_deferred, "Acknowledges that were not sent because a later one includes them."),
    UROCE_HELP(acks_sent, "Acknowledge packets sent."),
    UROCE_HELP(acks_rcvd, "Acknowledge packets received."),
    UROCE_HELP(req_cqe_error, "Work requests of send queues that completed with an error other than a flush."),
    UROCE_HELP(req_cqe_flush_error, "Work requests of send queues that were flushed."),
    UROCE_HELP(req_remote_access_errors, "NAKs for a remote access error that the requester received."),
    UROCE_HELP(req_remote_invalid_request, "NAKs for an invalid request that the requester received."),
    UROCE_HELP(resp_cqe_error, "Receives that completed with an error other than a flush."),
    UROCE_HELP(resp_cqe_flush_error, "Receives that were flushed."),
    UROCE_HELP(resp_remote_access_errors, "Requests for memory that their R_Key does not allow."),
    UROCE_HELP(resp_local_length_error, "Messages of RC or XRC that were longer than the receive."),
    UROCE_HELP(resp_invalid_requests, "Requests of RC or XRC that were answered with NAK invalid request."),
    UROCE_HELP(np_cnp_sent, "Congestion notification packets sent."),
    UROCE_HELP(rp_cnp_handled, "Congestion notification packets received by a QP."),
    UROCE_HELP(np_ecn_marked_roce_packets, "Packets received with the ECN mark CE."),
    UROCE_HELP(drop_no_qp, "Packets dropped: no QP has the number."),
    UROCE_HELP(drop_bad_state, "Packets dropped: the QP's state does not accept them."),
    UROCE_HELP(drop_wrong_service, "Packets dropped: the opcode is not one of the QP's service."),
    UROCE_HELP(drop_bad_pkey, "Packets dropped: another P_Key."),
    UROCE_HELP(drop_wrong_source, "Packets dropped: not from the QP's peer, or to another address of the port."),
    UROCE_HELP(drop_bad_qkey, "Datagrams dropped: another Q_Key."),
    UROCE_HELP(drop_no_receive, "UC and UD messages and raw packets dropped: no receive was posted."),
    UROCE_HELP(drop_too_long, "UC and UD messages and raw packets dropped: longer than the receive."),
    UROCE_HELP(drop_unexpected, "Packets dropped: not a step of any message or request under way."),
    UROCE_HELP(bad_wqe_opcode, "Work requests refused: the QP's type does not have the opcode."),
    UROCE_HELP(bad_wqe_sge_count, "Work requests refused: too many scatter/gather elements."),
    UROCE_HELP(bad_wqe_inline, "Work requests refused: too much inline data."),
    UROCE_HELP(bad_wqe_length, "Work requests refused: the message is too long."),
    UROCE_HELP(bad_wqe_flags, "Work requests refused: flags that do not fit the opcode."),
    UROCE_HELP(bad_wqe_ah, "Work requests refused: the address handle is unknown or of another PD."),
    UROCE_HELP(bad_wqe_key, "Work requests refused: an L_Key is unknown, too short or lacks the right."),
    UROCE_HELP(bad_wqe_bind,
     "Work requests refused: a bind, fast registration or invalidation that is not allowed."),
    UROCE_HELP(drop_bad_srq, "XRC packets dropped: no such SRQ in the QP's domain."),
    UROCE_HELP(drop_too_large, "Responses dropped: too large since the port's MTU was lowered."),
    UROCE_HELP(drop_reference, "Packets by reference dropped: the memory or the QP that they name has gone."),
    UROCE_HELP(sent_by_reference, "Frames between QPs of a worker thread that name their payload."),
    UROCE_HELP(sent_frames, "Frames that raw packet QPs sent."),
    UROCE_HELP(rcvd_frames, "Frames that raw packet QPs received."),
};
#undef UROCE_HELP
// clang-format on
static_assert(describes_all(kCounterHelp), "each counter needs a row, and a sentence that ends in a full stop");

}  // namespace uroce::proto
