// Flow steering: which frames a raw packet QP receives.
#pragma once

#include <infiniband/verbs.h>

#include "abi/control.h"
#include "objects.h"

namespace uroce::verbs {

ibv_flow* create_flow(ibv_qp* qp, ibv_flow_attr* attr);  ///< ibv_create_flow(3)
int destroy_flow(ibv_flow* flow);                        ///< ibv_destroy_flow(3)
/// Translates the specs that follow `attr` in memory into `request` and `counters` (flow_key.cc). errno: EINVAL,
/// EOPNOTSUPP.
int read_specs(const ibv_flow_attr& attr, uroce_create_flow_request& request, Counters*& counters);

}  // namespace uroce::verbs
