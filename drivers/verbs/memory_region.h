// Memory regions of ordinary memory.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "abi/control.h"
#include "objects.h"

namespace uroce::verbs {

/// EINVAL: unknown bits, or remote write access without local write access (ibv_reg_mr(3)).
int check_access(unsigned access);
/// ibv_reg_mr_iova2 after the optional access bits were cleared.
ibv_mr* register_range(ibv_pd* pd, void* addr, std::size_t length, std::uint64_t iova, unsigned access);
/// Fills in the public struct, and adds the region to its context.
ibv_mr* finish_mr(std::unique_ptr<Mr> mr, ibv_pd* pd, void* addr, std::size_t length,
                  const uroce_reg_mr_response& made);
void remember_mr(Mr& mr);
void forget_mr(const Mr& mr);

}  // namespace uroce::verbs
