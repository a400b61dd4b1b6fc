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

// Steering of DMA into a CPU's cache (PCIe TLP processing hints), since rdma-core 59: the daemon's copies go there
// anyway.
struct ibv_dmah;
struct ibv_dmah_init_attr;
UROCE_EXPORT ibv_dmah* ibv_alloc_dmah(ibv_context*, ibv_dmah_init_attr*) {
  const Verb verb("ibv_alloc_dmah");
  return null_with(EOPNOTSUPP);
}
UROCE_EXPORT int ibv_dealloc_dmah(ibv_dmah*) {
  const Verb verb("ibv_dealloc_dmah");
  return failed(EOPNOTSUPP);
}
