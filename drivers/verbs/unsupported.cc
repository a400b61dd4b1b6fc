// Exported verbs that this device does not support; docs/verbs.md says why.
#include <infiniband/verbs.h>

#include <cstdint>

#include "export.h"

using namespace uroce::verbs;

// Enhanced connection establishment (ibv_query_ece(3)): there are no options to negotiate, as with rxe. A success
// with vendor 0 would be passed on to rdma_set_local_ece(3), which refuses it.
UROCE_EXPORT int ibv_query_ece(ibv_qp*, ibv_ece*) {
  const Verb verb("ibv_query_ece");
  return failed(EOPNOTSUPP);
}
UROCE_EXPORT int ibv_set_ece(ibv_qp*, ibv_ece*) {
  const Verb verb("ibv_set_ece");
  return failed(EOPNOTSUPP);
}

// Payload may be written in any order of addresses.
UROCE_EXPORT int ibv_query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, std::uint32_t) { return 0; }
