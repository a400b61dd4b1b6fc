// The end of a send WQE: success, or an error that also stops the QP. All WQEs of all services end here, except
// those that work/teardown flushes.
#pragma once

#include <cstdint>

#include "proto/state/context.h"

namespace uroce::proto {

/// The CQE of a WQE that has ended with success.
[[gnu::always_inline]] inline uroce_cqe cqe_of(const Context& context, const Qp& qp, const Wqe& wqe) {
  uroce_cqe cqe = context.make_cqe(qp, wqe.wr_id);
  cqe.opcode = abi::operation_of(wqe.opcode).wc_opcode;
  cqe.byte_len = wqe.length;
  return cqe;
}

/// Completes the oldest send WQE with success; it makes a CQE if the WQE is signaled. The consumer index is
/// published before each CQE; the caller publishes it again after a run of completions.
void complete_send(Context& context, Qp& qp);

/// Completes the oldest send WQE with `failure` (uroce_failure). A UC or UD QP enters SQE, others enter ERR (IBTA
/// vol. 1, 10.3.1), as each does with WR_FLUSH_ERR, which a rule may choose.
void fail_send(Context& context, Qp& qp, std::uint8_t failure);

}  // namespace uroce::proto
