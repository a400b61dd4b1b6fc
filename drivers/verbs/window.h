// Memory windows (ibv_alloc_mw(3)). Binding is a work request: post.h.
#pragma once

#include <infiniband/verbs.h>

namespace uroce::verbs {

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type);
int dealloc_mw(ibv_mw* mw);

}  // namespace uroce::verbs
