// The function pointers of a context, which the inline functions of infiniband/verbs.h call. The header treats some
// null pointers as "not supported"; all others are set.
#include "completion.h"
#include "counters.h"
#include "device.h"
#include "domain.h"
#include "export.h"
#include "flow.h"
#include "memory_kinds.h"
#include "objects.h"
#include "post.h"
#include "query.h"
#include "queue_pair.h"
#include "rss.h"
#include "shared_receive.h"
#include "window.h"
#include "work_queue.h"

namespace uroce::verbs {
void fill_operations(Context& context) {
  ibv_context_ops& ops = context.base.context.ops;
  ops.alloc_mw = alloc_mw;
  ops.bind_mw = bind_mw;
  ops.dealloc_mw = dealloc_mw;
  ops.poll_cq = poll_cq;
  ops.req_notify_cq = req_notify_cq;
  ops.post_srq_recv = post_srq_recv;
  ops.post_send = post_send;
  ops.post_recv = post_recv;
  context.base.query_port = query_port_ex;
  context.base.query_device_ex = query_device_ex;
  context.base.query_rt_values = query_rt_values;
  context.base.create_cq_ex = create_cq_ex;
  context.base.create_qp_ex = create_qp_ex;
  context.base.open_qp = open_qp;
  context.base.create_srq_ex = create_srq_ex;
  context.base.get_srq_num = get_srq_num;
  context.base.open_xrcd = open_xrcd;
  context.base.close_xrcd = close_xrcd;
  context.base.modify_cq = modify_cq;
  context.base.advise_mr = advise_mr;
  context.base.alloc_null_mr = alloc_null_mr;
  context.base.alloc_dm = alloc_dm;
  context.base.free_dm = free_dm;
  context.base.reg_dm_mr = reg_dm_mr;
  context.base.alloc_td = alloc_td;
  context.base.dealloc_td = dealloc_td;
  context.base.modify_qp_rate_limit = modify_qp_rate_limit;
  context.base.alloc_parent_domain = alloc_parent_domain;
  context.base.create_wq = create_wq;
  context.base.modify_wq = modify_wq;
  context.base.destroy_wq = destroy_wq;
  context.base.create_rwq_ind_table = create_rwq_ind_table;
  context.base.destroy_rwq_ind_table = destroy_rwq_ind_table;
  context.base.ibv_create_flow = create_flow;
  context.base.ibv_destroy_flow = destroy_flow;
  context.base.create_counters = create_counters;
  context.base.destroy_counters = destroy_counters;
  context.base.attach_counters_point_flow = attach_counters_point_flow;
  context.base.read_counters = read_counters;
}

}  // namespace uroce::verbs
