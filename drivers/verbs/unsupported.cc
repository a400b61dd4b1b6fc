// Exported verbs that answer EOPNOTSUPP; README.md says why.
#include "export.h"
#include "objects.h"

using namespace uroce::verbs;

UROCE_EXPORT ibv_srq* create_srq(ibv_pd*, ibv_srq_init_attr*) { return null_with(EOPNOTSUPP); }
UROCE_VERSIONS_1_0_AND_1_1(create_srq, ibv_create_srq);
UROCE_EXPORT int modify_srq(ibv_srq*, ibv_srq_attr*, int) { return failed(EOPNOTSUPP); }
UROCE_VERSIONS_1_0_AND_1_1(modify_srq, ibv_modify_srq);
UROCE_EXPORT int query_srq(ibv_srq*, ibv_srq_attr*) { return failed(EOPNOTSUPP); }
UROCE_VERSIONS_1_0_AND_1_1(query_srq, ibv_query_srq);
UROCE_EXPORT int destroy_srq(ibv_srq*) { return failed(EOPNOTSUPP); }
UROCE_VERSIONS_1_0_AND_1_1(destroy_srq, ibv_destroy_srq);

UROCE_EXPORT int attach_mcast(ibv_qp*, const ibv_gid*, std::uint16_t) { return failed(EOPNOTSUPP); }
UROCE_VERSIONS_1_0_AND_1_1(attach_mcast, ibv_attach_mcast);
UROCE_EXPORT int detach_mcast(ibv_qp*, const ibv_gid*, std::uint16_t) { return failed(EOPNOTSUPP); }
UROCE_VERSIONS_1_0_AND_1_1(detach_mcast, ibv_detach_mcast);

// Sharing objects between processes by descriptor.
UROCE_EXPORT ibv_context* ibv_import_device(int) { return null_with(EOPNOTSUPP); }
UROCE_EXPORT ibv_pd* ibv_import_pd(ibv_context*, std::uint32_t) { return null_with(EOPNOTSUPP); }
UROCE_EXPORT void ibv_unimport_pd(ibv_pd*) {}
UROCE_EXPORT ibv_mr* ibv_import_mr(ibv_pd*, std::uint32_t) { return null_with(EOPNOTSUPP); }
UROCE_EXPORT void ibv_unimport_mr(ibv_mr*) {}
UROCE_EXPORT ibv_dm* ibv_import_dm(ibv_context*, std::uint32_t) { return null_with(EOPNOTSUPP); }
UROCE_EXPORT void ibv_unimport_dm(ibv_dm*) {}

// Enhanced connection establishment: nothing to negotiate.
UROCE_EXPORT int ibv_query_ece(ibv_qp*, ibv_ece* ece) {
  *ece = {};
  return EOPNOTSUPP;
}
UROCE_EXPORT int ibv_set_ece(ibv_qp*, ibv_ece*) { return failed(EOPNOTSUPP); }

// Payload is not promised to arrive in the order of its addresses.
UROCE_EXPORT int ibv_query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, std::uint32_t) { return 0; }
