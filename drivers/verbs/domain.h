// Thread domains and parent domains (ibv_alloc_td(3), ibv_alloc_parent_domain(3)).
#pragma once

#include <infiniband/verbs.h>

#include "objects.h"

namespace uroce::verbs {

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr);
int dealloc_td(ibv_td* td);
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr);

/// Whether both are the same PD to the daemon. A parent domain has the handle of the PD that it was made of.
inline bool same_domain(const ibv_pd* a, const ibv_pd* b) {
  return a != nullptr && b != nullptr && a->context == b->context && a->handle == b->handle;
}
/// Whether the program serializes all calls on objects of this domain, so that they need no locks.
inline bool unlocked(ibv_pd* pd) { return pd != nullptr && as_pd(pd)->td != nullptr; }

}  // namespace uroce::verbs
