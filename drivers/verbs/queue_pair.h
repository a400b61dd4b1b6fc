// Queue pairs.
#pragma once

#include <infiniband/verbs.h>

namespace uroce::verbs {

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr);  ///< ibv_create_qp_ex(3)
ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attr);          ///< ibv_open_qp(3)
int modify_qp_rate_limit(ibv_qp* qp, ibv_qp_rate_limit_attr* attr);     ///< ibv_modify_qp_rate_limit(3)

}  // namespace uroce::verbs
