// Setup code of the programs here: opens a device by name, and connects an RC QP to another one of the same device.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace bench {

inline void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "%s failed\n", what);
  std::exit(1);
}

inline ibv_context* open(const char* name) {
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  for (int i = 0; i < count; ++i) {
    if (std::strcmp(ibv_get_device_name(list[i]), name) != 0) continue;
    ibv_context* const context = ibv_open_device(list[i]);
    ibv_free_device_list(list);
    require(context != nullptr, "ibv_open_device");
    return context;
  }
  require(false, "finding the device");
  return nullptr;
}

inline void connect(ibv_context* context, ibv_qp* qp, std::uint32_t peer) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  require(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
          "INIT");
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer;
  attr.min_rnr_timer = 12;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.hop_limit = 1;
  require(ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid) == 0, "ibv_query_gid");
  require(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
          "RTR");
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = attr.rnr_retry = 7;
  require(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                            IBV_QP_MAX_QP_RD_ATOMIC) == 0,
          "RTS");
}

}  // namespace bench
