// Exported verbs that have no effect on this device; docs/verbs.md says why.
#include <infiniband/verbs.h>

#include <cstdint>

#include "export.h"

using namespace uroce::verbs;

// Enhanced connection establishment (ibv_query_ece(3)): this vendor defines no options, so none of a peer's are
// accepted.
UROCE_EXPORT int ibv_query_ece(ibv_qp*, ibv_ece* ece) {
  const Verb verb("ibv_query_ece");
  *ece = {};
  return 0;
}
UROCE_EXPORT int ibv_set_ece(ibv_qp*, ibv_ece* ece) {
  const Verb verb("ibv_set_ece");
  if (ece->comp_mask != 0) return failed(EINVAL);
  ece->options = 0;
  return 0;
}

// Payload may be written in any order of addresses.
UROCE_EXPORT int ibv_query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, std::uint32_t) { return 0; }
