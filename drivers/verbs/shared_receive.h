// Shared receive queues and XRC domains.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace uroce::verbs {

ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr);  ///< ibv_create_srq_ex(3)
int get_srq_num(ibv_srq* srq, std::uint32_t* number);                      ///< ibv_get_srq_num(3)
ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attr);       ///< ibv_open_xrcd(3)
int close_xrcd(ibv_xrcd* xrcd);                                            ///< ibv_close_xrcd(3)

}  // namespace uroce::verbs
