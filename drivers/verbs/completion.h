// Completion queues.
#pragma once

#include <infiniband/verbs.h>

#include "abi/control.h"

namespace uroce::verbs {

/// The part that ibv_create_cq(3) and ibv_create_cq_ex(3) share. `shape`: entries and flags.
ibv_cq* create_cq(ibv_context* context, const uroce_create_cq_request& shape, void* cq_context,
                  ibv_comp_channel* channel);
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr);  ///< ibv_create_cq_ex(3)
int poll_cq(ibv_cq* cq, int count, ibv_wc* wc);                            ///< ibv_poll_cq(3)
int req_notify_cq(ibv_cq* cq, int solicited_only);                         ///< ibv_req_notify_cq(3)
int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr);                       ///< ibv_modify_cq(3)

}  // namespace uroce::verbs
