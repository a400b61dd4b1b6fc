#include "proto/receive_queue.h"

#include <algorithm>
#include <cstring>

namespace uroce::proto {

Taken take_receive(Core& core, Qp& qp) {
  if (qp.has_srq || qp.rq.count() == 0 || qp.rq.available() == 0) return Taken::kNone;
  const std::byte* const ring_entry = qp.rq.peek_address();
  // Header first, then as many elements as the private header says: every byte is read once.
  uroce_rq_entry header;
  qp.rq.copy_next(&header, sizeof header);
  ReceiveWqe& wqe = qp.receive;
  wqe.wr_id = header.wr_id;
  wqe.num_sge = header.num_sge;
  wqe.status = UROCE_WC_SUCCESS;
  qp.have_receive = true;
  qp.receive_at = {};
  qp.rq.publish_consumed(qp.rq.next_index());
  const std::uint32_t room = (qp.rq.stride() - static_cast<std::uint32_t>(sizeof header)) / sizeof(uroce_sge);
  if (wqe.num_sge > std::min({qp.max_recv_sge, kMaxSge, room})) {
    ++core.counters.bad_wqe_sge_count;
    wqe.num_sge = 0;
    wqe.status = UROCE_WC_LOC_QP_OP_ERR;
    return Taken::kBad;
  }
  std::memcpy(wqe.sge, ring_entry + sizeof header, wqe.num_sge * sizeof(uroce_sge));
  return Taken::kOk;
}

void complete_receive(Core& core, Qp& qp, uroce_cqe& cqe, bool solicited) {
  qp.have_receive = false;
  core.push(qp.recv_cq, cqe, solicited);
}

void fail_receive(Core& core, Qp& qp, std::uint8_t status) {
  qp.have_receive = false;
  uroce_cqe cqe = core.make_cqe(qp, qp.receive.wr_id, status);
  cqe.opcode = UROCE_WC_RECV;
  cqe.vendor_err = status;
  ++(status == UROCE_WC_WR_FLUSH_ERR ? core.counters.resp_cqe_flush_error : core.counters.resp_cqe_error);
  core.push(qp.recv_cq, cqe, true);
}

}  // namespace uroce::proto
