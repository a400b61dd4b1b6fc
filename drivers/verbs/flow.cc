// Flow steering: which frames a raw packet QP receives (ibv_create_flow(3)).
#include <memory>

#include "export.h"
#include "flow.h"
#include "objects.h"

namespace uroce::verbs {
namespace {

int check(const ibv_qp& qp, const ibv_flow_attr& attr) {
  if (qp.qp_type == IBV_QPT_UD) return EOPNOTSUPP;  // meant for IPoIB; UD QPs here receive by QPN only
  if (qp.qp_type != IBV_QPT_RAW_PACKET || attr.comp_mask != 0 || attr.port != 1) return EINVAL;
  if ((attr.flags & IBV_FLOW_ATTR_FLAGS_EGRESS) != 0) return EOPNOTSUPP;
  if ((attr.flags & ~std::uint32_t{IBV_FLOW_ATTR_FLAGS_DONT_TRAP}) != 0) return EINVAL;
  if (attr.type < IBV_FLOW_ATTR_NORMAL || attr.type > IBV_FLOW_ATTR_SNIFFER) return EINVAL;
  return attr.flags == 0 || attr.type == IBV_FLOW_ATTR_NORMAL ? 0 : EINVAL;
}

void count_flow(Counters* counters, int by) {
  if (counters == nullptr) return;
  const std::lock_guard lock(counters->mutex);
  counters->flows += by;
}

// Counters without an attached point would count nothing.
bool has_points(Counters* counters) {
  if (counters == nullptr) return true;
  const std::lock_guard lock(counters->mutex);
  return !counters->points.empty();
}

}  // namespace

ibv_flow* create_flow(ibv_qp* qp, ibv_flow_attr* attr) {
  const Verb verb("ibv_create_flow");
  return guarded<ibv_flow*>(nullptr, [&]() -> ibv_flow* {
    if (const int error = check(*qp, *attr); error != 0) return null_with(error);
    auto flow = std::make_unique<Flow>();
    uroce_create_flow_request request{};
    request.qp = qp->handle;
    request.type = attr->type;
    request.priority = attr->priority;
    if (attr->flags != 0) request.flags |= UROCE_FLOW_DONT_TRAP;
    if (as_qp(qp)->table != nullptr) request.flags |= UROCE_FLOW_TO_RSS;
    if (const int error = read_specs(*attr, request, flow->counters); error != 0) return null_with(error);
    if (!has_points(flow->counters)) return null_with(EINVAL);
    // First, so that no point is added before the flow exists.
    count_flow(flow->counters, 1);
    uroce_handle reply{};
    if (const int error = session_of(qp->context).call(UROCE_CMD_CREATE_FLOW, request, reply); error != 0) {
      count_flow(flow->counters, -1);
      return null_with(error);
    }
    flow->flow = {0, qp->context, reply.handle};
    return &flow.release()->flow;
  });
}

int destroy_flow(ibv_flow* flow) {
  const Verb verb("ibv_destroy_flow");
  auto* const destroyed = reinterpret_cast<Flow*>(flow);
  const int error = session_of(flow->context).release(UROCE_CMD_DESTROY_FLOW, flow->handle);
  if (error != 0) return noted(error);
  count_flow(destroyed->counters, -1);
  delete destroyed;
  return 0;
}

}  // namespace uroce::verbs
