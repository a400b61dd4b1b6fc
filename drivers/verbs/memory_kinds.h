// Null regions, device memory, and advice on regions on demand.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace uroce::verbs {

/// ibv_advise_mr(3).
int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* list, std::uint32_t count);
ibv_mr* alloc_null_mr(ibv_pd* pd);  ///< ibv_alloc_null_mr(3)
/// ibv_alloc_dm(3).
ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, std::uint64_t offset, std::size_t length, unsigned access);
ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attr);
ibv_dm* import_dm(ibv_context* context, std::uint32_t handle);
int free_dm(ibv_dm* dm);

}  // namespace uroce::verbs
