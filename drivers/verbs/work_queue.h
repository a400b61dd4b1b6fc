// Work queues: receive queues for raw packets (rss.h distributes frames over them).
#pragma once

#include <infiniband/verbs.h>

namespace uroce::verbs {

ibv_wq* create_wq(ibv_context* context, ibv_wq_init_attr* attr);  ///< ibv_create_wq(3)
int modify_wq(ibv_wq* wq, ibv_wq_attr* attr);                     ///< ibv_modify_wq(3)
int destroy_wq(ibv_wq* wq);                                       ///< ibv_destroy_wq(3)

}  // namespace uroce::verbs
