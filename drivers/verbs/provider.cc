// The functions that libibverbs exports to its providers (libmlx5, libefa, ...). Programs that link with providers
// need all of these symbols at load time. The providers find no devices, so the functions are not called; all fail
// cleanly.
#include <cstddef>

#include "export.h"

/// Read by providers when a device is unplugged.
UROCE_EXPORT bool any_verbs_allow_disassociate_destroy;
bool any_verbs_allow_disassociate_destroy = false;
UROCE_PRIVATE_VERSIONS(any_verbs_allow_disassociate_destroy, verbs_allow_disassociate_destroy);

// Called by providers when they are loaded. Their devices are not supported.
UROCE_EXPORT void verbs_register_driver_34(const void*) {}
UROCE_EXPORT void verbs_register_driver_57(const void*) {}
UROCE_EXPORT void verbs_register_driver_59(const void*) {}
UROCE_EXPORT void verbs_register_driver_64(const void*) {}
UROCE_EXPORT void verbs_register_driver_65(const void*) {}
UROCE_EXPORT void register_driver(const char*, void*) {}
UROCE_COMPAT_VERSION(register_driver, ibv_register_driver, "IBVERBS_1.1");

UROCE_EXPORT void* any_verbs_init_and_alloc_context(void*, int, std::size_t, void*, unsigned) {
  return uroce::verbs::null_with(EOPNOTSUPP);
}
UROCE_PRIVATE_VERSIONS(any_verbs_init_and_alloc_context, _verbs_init_and_alloc_context);
UROCE_EXPORT void* any_verbs_open_device(void*, void*) { return uroce::verbs::null_with(EOPNOTSUPP); }
UROCE_PRIVATE_VERSIONS(any_verbs_open_device, verbs_open_device);
UROCE_EXPORT void any_verbs_uninit_context(void*) {}
UROCE_PRIVATE_VERSIONS(any_verbs_uninit_context, verbs_uninit_context);
UROCE_EXPORT void any_verbs_set_ops(void*, const void*) {}
UROCE_PRIVATE_VERSIONS(any_verbs_set_ops, verbs_set_ops);
UROCE_EXPORT void any_verbs_init_cq(void*, void*, void*, void*) {}
UROCE_PRIVATE_VERSIONS(any_verbs_init_cq, verbs_init_cq);
UROCE_EXPORT void any_verbs_log(void*, unsigned, const char*, ...) {}
UROCE_PRIVATE_VERSIONS(any_verbs_log, __verbs_log);
UROCE_EXPORT int any_ibv_read_ibdev_sysfs_file(char*, std::size_t, void*, const char*, ...) { return -1; }
UROCE_PRIVATE_VERSIONS(any_ibv_read_ibdev_sysfs_file, ibv_read_ibdev_sysfs_file);
UROCE_EXPORT unsigned any_ioctl_final_num_attrs(unsigned count, const void*) { return count; }
UROCE_PRIVATE_VERSIONS(any_ioctl_final_num_attrs, __ioctl_final_num_attrs);
UROCE_EXPORT int any_execute_ioctl(void*, void*) { return uroce::verbs::failed(EOPNOTSUPP); }
UROCE_PRIVATE_VERSIONS(any_execute_ioctl, execute_ioctl);

// Buffers for guests whose memory is encrypted.
UROCE_EXPORT void* any_ibv_dmabuf_heap_cc_shared_init() { return uroce::verbs::null_with(EOPNOTSUPP); }
UROCE_PRIVATE_VERSIONS(any_ibv_dmabuf_heap_cc_shared_init, ibv_dmabuf_heap_cc_shared_init);
UROCE_EXPORT void any_ibv_dmabuf_heap_destroy(void*) {}
UROCE_PRIVATE_VERSIONS(any_ibv_dmabuf_heap_destroy, ibv_dmabuf_heap_destroy);
UROCE_EXPORT void* any_ibv_dmabuf_heap_alloc(void*, std::size_t, int*) {
  return uroce::verbs::null_with(EOPNOTSUPP);
}
UROCE_PRIVATE_VERSIONS(any_ibv_dmabuf_heap_alloc, ibv_dmabuf_heap_alloc);
UROCE_EXPORT void any_ibv_dmabuf_heap_free(void*, std::size_t, int) {}
UROCE_PRIVATE_VERSIONS(any_ibv_dmabuf_heap_free, ibv_dmabuf_heap_free);

#define UROCE_NO_COMMAND(name)                                               \
  UROCE_EXPORT int any_##name() { return uroce::verbs::failed(EOPNOTSUPP); } \
  UROCE_PRIVATE_VERSIONS(any_##name, name);
UROCE_NO_COMMAND(ibv_cmd_advise_mr)
UROCE_NO_COMMAND(ibv_cmd_alloc_dm)
UROCE_NO_COMMAND(ibv_cmd_alloc_dmah)
UROCE_NO_COMMAND(ibv_cmd_alloc_mw)
UROCE_NO_COMMAND(ibv_cmd_alloc_pd)
UROCE_NO_COMMAND(ibv_cmd_attach_mcast)
UROCE_NO_COMMAND(ibv_cmd_close_xrcd)
UROCE_NO_COMMAND(ibv_cmd_create_ah)
UROCE_NO_COMMAND(ibv_cmd_create_comp_cntr)
UROCE_NO_COMMAND(ibv_cmd_create_counters)
UROCE_NO_COMMAND(ibv_cmd_create_cq)
UROCE_NO_COMMAND(ibv_cmd_create_cq_ex)
UROCE_NO_COMMAND(ibv_cmd_create_cq_ex2)
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
UROCE_NO_COMMAND(ibv_cmd_destroy_comp_cntr)
UROCE_NO_COMMAND(ibv_cmd_destroy_counters)
UROCE_NO_COMMAND(ibv_cmd_destroy_cq)
UROCE_NO_COMMAND(ibv_cmd_destroy_flow)
UROCE_NO_COMMAND(ibv_cmd_destroy_flow_action)
UROCE_NO_COMMAND(ibv_cmd_destroy_qp)
UROCE_NO_COMMAND(ibv_cmd_destroy_rwq_ind_table)
UROCE_NO_COMMAND(ibv_cmd_destroy_srq)
UROCE_NO_COMMAND(ibv_cmd_destroy_wq)
UROCE_NO_COMMAND(ibv_cmd_detach_mcast)
UROCE_NO_COMMAND(ibv_cmd_export_dmabuf_fd)
UROCE_NO_COMMAND(ibv_cmd_free_dm)
UROCE_NO_COMMAND(ibv_cmd_free_dmah)
UROCE_NO_COMMAND(ibv_cmd_get_context)
UROCE_NO_COMMAND(ibv_cmd_inc_comp_cntr)
UROCE_NO_COMMAND(ibv_cmd_inc_err_comp_cntr)
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
UROCE_NO_COMMAND(ibv_cmd_qp_attach_comp_cntr)
UROCE_NO_COMMAND(ibv_cmd_query_comp_cntr_caps)
UROCE_NO_COMMAND(ibv_cmd_query_context)
UROCE_NO_COMMAND(ibv_cmd_query_device_any)
UROCE_NO_COMMAND(ibv_cmd_query_mr)
UROCE_NO_COMMAND(ibv_cmd_query_port)
UROCE_NO_COMMAND(ibv_cmd_query_port_speed)
UROCE_NO_COMMAND(ibv_cmd_query_qp)
UROCE_NO_COMMAND(ibv_cmd_query_srq)
UROCE_NO_COMMAND(ibv_cmd_read_comp_cntr)
UROCE_NO_COMMAND(ibv_cmd_read_counters)
UROCE_NO_COMMAND(ibv_cmd_read_err_comp_cntr)
UROCE_NO_COMMAND(ibv_cmd_reg_dm_mr)
UROCE_NO_COMMAND(ibv_cmd_reg_dmabuf_mr)
UROCE_NO_COMMAND(ibv_cmd_reg_mr)
UROCE_NO_COMMAND(ibv_cmd_reg_mr_ex)
UROCE_NO_COMMAND(ibv_cmd_req_notify_cq)
UROCE_NO_COMMAND(ibv_cmd_rereg_mr)
UROCE_NO_COMMAND(ibv_cmd_resize_cq)
UROCE_NO_COMMAND(ibv_cmd_set_comp_cntr)
UROCE_NO_COMMAND(ibv_cmd_set_err_comp_cntr)
