// Counters of flows (ibv_create_counters(3), ibv_attach_counters_point_flow(3), ibv_read_counters(3)).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace uroce::verbs {

ibv_counters* create_counters(ibv_context* context, ibv_counters_init_attr* attr);
int destroy_counters(ibv_counters* counters);
int attach_counters_point_flow(ibv_counters* counters, ibv_counter_attach_attr* attr, ibv_flow* flow);
int read_counters(ibv_counters* counters, std::uint64_t* values, std::uint32_t count, std::uint32_t flags);

}  // namespace uroce::verbs
