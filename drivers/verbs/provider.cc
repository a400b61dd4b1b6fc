// The functions that libibverbs exports to its providers (libmlx5, libefa, ...). Programs that link with providers
// need all of these symbols at load time. The providers find no devices, so the functions are not called; all fail
// cleanly.
#include <cstddef>

#include "export.h"

/// Read by providers when a device is unplugged.
UROCE_EXPORT bool verbs_allow_disassociate_destroy;
bool verbs_allow_disassociate_destroy = false;

// Called by providers when they are loaded. Their devices are not supported.
UROCE_EXPORT void verbs_register_driver_34(const void*) {}
UROCE_EXPORT void register_driver(const char*, void*) {}
UROCE_COMPAT_VERSION(register_driver, ibv_register_driver, "IBVERBS_1.1");

UROCE_EXPORT void* _verbs_init_and_alloc_context(void*, int, std::size_t, void*, unsigned) {
  return uroce::verbs::null_with(EOPNOTSUPP);
}
UROCE_EXPORT void* verbs_open_device(void*, void*) { return uroce::verbs::null_with(EOPNOTSUPP); }
UROCE_EXPORT void verbs_uninit_context(void*) {}
UROCE_EXPORT void verbs_set_ops(void*, const void*) {}
UROCE_EXPORT void verbs_init_cq(void*, void*, void*, void*) {}
UROCE_EXPORT void __verbs_log(void*, unsigned, const char*, ...) {}
UROCE_EXPORT int ibv_read_ibdev_sysfs_file(char*, std::size_t, void*, const char*, ...) { return -1; }
UROCE_EXPORT unsigned __ioctl_final_num_attrs(unsigned count, const void*) { return count; }
UROCE_EXPORT int execute_ioctl(void*, void*) { return uroce::verbs::failed(EOPNOTSUPP); }

#define UROCE_NO_COMMAND(name) \
  UROCE_EXPORT int name() { return uroce::verbs::failed(EOPNOTSUPP); }
UROCE_NO_COMMAND(ibv_cmd_advise_mr)
UROCE_NO_COMMAND(ibv_cmd_alloc_dm)
UROCE_NO_COMMAND(ibv_cmd_alloc_mw)
UROCE_NO_COMMAND(ibv_cmd_alloc_pd)
UROCE_NO_COMMAND(ibv_cmd_attach_mcast)
UROCE_NO_COMMAND(ibv_cmd_close_xrcd)
UROCE_NO_COMMAND(ibv_cmd_create_ah)
UROCE_NO_COMMAND(ibv_cmd_create_counters)
UROCE_NO_COMMAND(ibv_cmd_create_cq)
UROCE_NO_COMMAND(ibv_cmd_create_cq_ex)
UROCE_NO_COMMAND(ibv_cmd_create_cq_ex2)  // since rdma-core 53
UROCE_NO_COMMAND(ibv_cmd_create_flow)
UROCE_NO_COMMAND(ibv_cmd_create_flow_action_esp)
UROCE_NO_COMMAND(ibv_cmd_create_qp)
UROCE_NO_COMMAND(ibv_cmd_create_qp_ex)
UROCE_NO_COMMAND(ibv_cmd_create_qp_ex2)
UROCE_NO_COMMAND(ibv_cmd_create_rwq_ind_table)
UROCE_NO_COMMAND(ibv_cmd_create_srq)
UROCE_NO_COMMAND(ibv_cmd_create_srq_ex)
UROCE_NO_COMMAND(ibv_cmd_create_wq)
UROCE_NO_COMMAND(ibv_cmd_dealloc_mw)
UROCE_NO_COMMAND(ibv_cmd_dealloc_pd)
UROCE_NO_COMMAND(ibv_cmd_dereg_mr)
UROCE_NO_COMMAND(ibv_cmd_destroy_ah)
UROCE_NO_COMMAND(ibv_cmd_destroy_counters)
UROCE_NO_COMMAND(ibv_cmd_destroy_cq)
UROCE_NO_COMMAND(ibv_cmd_destroy_flow)
UROCE_NO_COMMAND(ibv_cmd_destroy_flow_action)
UROCE_NO_COMMAND(ibv_cmd_destroy_qp)
UROCE_NO_COMMAND(ibv_cmd_destroy_rwq_ind_table)
UROCE_NO_COMMAND(ibv_cmd_destroy_srq)
UROCE_NO_COMMAND(ibv_cmd_destroy_wq)
UROCE_NO_COMMAND(ibv_cmd_detach_mcast)
UROCE_NO_COMMAND(ibv_cmd_free_dm)
UROCE_NO_COMMAND(ibv_cmd_get_context)
UROCE_NO_COMMAND(ibv_cmd_modify_cq)
UROCE_NO_COMMAND(ibv_cmd_modify_flow_action_esp)
UROCE_NO_COMMAND(ibv_cmd_modify_qp)
UROCE_NO_COMMAND(ibv_cmd_modify_qp_ex)
UROCE_NO_COMMAND(ibv_cmd_modify_srq)
UROCE_NO_COMMAND(ibv_cmd_modify_wq)
UROCE_NO_COMMAND(ibv_cmd_open_qp)
UROCE_NO_COMMAND(ibv_cmd_open_xrcd)
UROCE_NO_COMMAND(ibv_cmd_poll_cq)
UROCE_NO_COMMAND(ibv_cmd_post_recv)
UROCE_NO_COMMAND(ibv_cmd_post_send)
UROCE_NO_COMMAND(ibv_cmd_post_srq_recv)
UROCE_NO_COMMAND(ibv_cmd_query_context)
UROCE_NO_COMMAND(ibv_cmd_query_device_any)
UROCE_NO_COMMAND(ibv_cmd_query_mr)
UROCE_NO_COMMAND(ibv_cmd_query_port)
UROCE_NO_COMMAND(ibv_cmd_query_qp)
UROCE_NO_COMMAND(ibv_cmd_query_srq)
UROCE_NO_COMMAND(ibv_cmd_read_counters)
UROCE_NO_COMMAND(ibv_cmd_reg_dm_mr)
UROCE_NO_COMMAND(ibv_cmd_reg_dmabuf_mr)
UROCE_NO_COMMAND(ibv_cmd_reg_mr)
UROCE_NO_COMMAND(ibv_cmd_req_notify_cq)
UROCE_NO_COMMAND(ibv_cmd_rereg_mr)
UROCE_NO_COMMAND(ibv_cmd_resize_cq)
