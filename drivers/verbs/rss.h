// Receive side scaling: indirection tables, and QPs that distribute frames over their work queues.
#pragma once

#include <infiniband/verbs.h>

#include "objects.h"

namespace uroce::verbs {

/// ibv_create_rwq_ind_table(3).
ibv_rwq_ind_table* create_rwq_ind_table(ibv_context* context, ibv_rwq_ind_table_init_attr* attr);
int destroy_rwq_ind_table(ibv_rwq_ind_table* table);
/// The part of ibv_create_qp_ex(3) for an `attr` with IBV_QP_INIT_ATTR_IND_TABLE or _RX_HASH.
Qp* create_rss_qp(ibv_context* context, ibv_pd* pd, ibv_qp_init_attr_ex& attr);

}  // namespace uroce::verbs
