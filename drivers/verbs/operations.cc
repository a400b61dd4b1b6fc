// The function pointers of a context: inline verbs of infiniband/verbs.h go through them. A slot that the header
// takes for "not supported" when null stays null; the others must answer.
#include "export.h"
#include "objects.h"

namespace uroce::verbs {
namespace {

ibv_mw* alloc_mw(ibv_pd*, ibv_mw_type) { return null_with(EOPNOTSUPP); }
int bind_mw(ibv_qp*, ibv_mw*, ibv_mw_bind*) { return EOPNOTSUPP; }
int dealloc_mw(ibv_mw*) { return EOPNOTSUPP; }

int post_srq_recv(ibv_srq*, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  *bad_wr = wr;
  return EOPNOTSUPP;
}

}  // namespace

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
}

}  // namespace uroce::verbs
