// Memory windows (ibv_alloc_mw(3)). Binding is a work request: post.h.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace uroce::verbs {

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type);
int dealloc_mw(ibv_mw* mw);

/// The key of a window after a bind: its index, and the low byte of the requested key.
inline std::uint32_t with_tag(std::uint32_t key, std::uint32_t requested) {
  return (key & ~0xffu) | (requested & 0xffu);
}

}  // namespace uroce::verbs
