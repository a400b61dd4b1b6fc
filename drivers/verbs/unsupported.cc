// Exported verbs that have nothing to say of this device; README.md says why.
#include <infiniband/verbs.h>

#include <cstdint>

#include "export.h"

using namespace uroce::verbs;

// Enhanced connection establishment: this vendor has no options, so none are left of what a peer offers.
UROCE_EXPORT int ibv_query_ece(ibv_qp*, ibv_ece* ece) {
  *ece = {};
  return 0;
}
UROCE_EXPORT int ibv_set_ece(ibv_qp*, ibv_ece* ece) {
  if (ece->comp_mask != 0) return failed(EINVAL);
  ece->options = 0;
  return 0;
}

// Payload is not promised to arrive in the order of its addresses.
UROCE_EXPORT int ibv_query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, std::uint32_t) { return 0; }
