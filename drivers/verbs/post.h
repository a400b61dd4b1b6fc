// Work requests: entries in the rings that the worker reads (queue/work_queue.h).
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include "objects.h"

namespace uroce::verbs {

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr);        ///< ibv_post_send(3)
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);        ///< ibv_post_recv(3)
int post_wq_recv(ibv_wq* wq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);     ///< ibv_post_wq_recv
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);  ///< ibv_post_srq_recv(3)
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);                  ///< ibv_bind_mw(3)

/// Fills the function pointers of ibv_qp_ex (ibv_wr_post(3)). errno: 0, EOPNOTSUPP when `operations`
/// (ibv_qp_create_send_ops_flags) names one that this type of QP does not support.
int fill_work_requests(Qp& qp, std::uint64_t operations);

/// For Qp::packets: whether the payload of the entry fits into one packet, or may be cut into segments (TSO).
bool packets_fit(const Qp& qp, const uroce_sq_entry& entry);
/// Appends the headers of a TSO entry to its list. False: `bytes` or `mss` is out of range for a frame of this QP.
bool write_tso(const Qp& qp, const void* header, std::uint16_t bytes, std::uint16_t mss, uroce_sq_entry& entry);
/// Bytes of an entry's list, of addresses or inline data.
inline std::size_t list_bytes(const uroce_sq_entry& entry) {
  return entry.num_sge * sizeof(uroce_sge) + entry.inline_length;
}

}  // namespace uroce::verbs
