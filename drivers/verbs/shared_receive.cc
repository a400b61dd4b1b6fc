// Shared receive queues (ibv_create_srq(3)), and XRC domains (ibv_open_xrcd(3)).
#include <memory>
#include <span>

#include "domain.h"
#include "events.h"
#include "export.h"
#include "objects.h"
#include "shared_receive.h"

namespace uroce::verbs {
namespace {

ibv_srq* make(ibv_context* context, ibv_pd* pd, uroce_create_srq_request request, ibv_srq_attr& attr,
              void* srq_context) {
  Context& owner = *as_context(context);
  auto srq = std::make_unique<Srq>();
  prepare_events(srq->srq);
  request.pd = pd->handle;
  request.max_wr = attr.max_wr;
  request.max_sge = attr.max_sge;
  // srq_limit is ignored here: ibv_modify_srq(3) sets it.
  {
    const std::lock_guard lock(owner.objects_mutex);
    request.cookie = srq->cookie = owner.next_cookie++;
    owner.srqs.emplace(srq->cookie, srq.get());
  }
  if (const int error = client::SharedReceiveQueue::create(*owner.session, request, srq->queue); error != 0) {
    const std::lock_guard lock(owner.objects_mutex);
    owner.srqs.erase(srq->cookie);
    return null_with(error);
  }
  if (unlocked(pd)) srq->queue.lock.turn_off();
  ibv_srq& made = srq->srq;
  made.context = context;
  made.srq_context = srq_context;
  made.pd = pd;
  made.handle = srq->queue.made().handle;
  as_pd(pd)->users.fetch_add(1);
  attr.max_wr = srq->queue.made().max_wr;
  attr.max_sge = srq->queue.made().max_sge;
  return &srq.release()->srq;
}

}  // namespace

ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr) {
  const Verb verb("ibv_create_srq_ex");
  return guarded<ibv_srq*>(nullptr, [&]() -> ibv_srq* {
    constexpr std::uint32_t kXrc = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    constexpr std::uint32_t kKnown = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | kXrc;
    if ((attr->comp_mask & ~kKnown) != 0) return null_with(EOPNOTSUPP);
    if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0 || attr->pd == nullptr) return null_with(EINVAL);
    uroce_create_srq_request request{};
    const ibv_srq_type type = (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0 ? attr->srq_type : IBV_SRQT_BASIC;
    if (type == IBV_SRQT_XRC) {
      if ((attr->comp_mask & kXrc) != kXrc || attr->xrcd == nullptr || attr->cq == nullptr)
        return null_with(EINVAL);
      request.type = 1;
      request.xrcd = reinterpret_cast<Xrcd*>(attr->xrcd)->handle;
      request.cq = attr->cq->handle;
    } else if (type != IBV_SRQT_BASIC) {
      return null_with(EOPNOTSUPP);
    }
    return make(context, attr->pd, request, attr->attr, attr->srq_context);
  });
}

int get_srq_num(ibv_srq* srq, std::uint32_t* number) {
  const Verb verb("ibv_get_srq_num");
  *number = as_srq(srq)->queue.made().srqn;
  return 0;
}

ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attr) {
  const Verb verb("ibv_open_xrcd");
  return guarded<ibv_xrcd*>(nullptr, [&]() -> ibv_xrcd* {
    constexpr std::uint32_t kNeeded = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    if ((attr->comp_mask & kNeeded) != kNeeded) return null_with(EINVAL);
    if ((attr->comp_mask & ~kNeeded) != 0) return null_with(EOPNOTSUPP);
    auto xrcd = std::make_unique<Xrcd>();
    const uroce_open_xrcd_request request{static_cast<std::uint32_t>(attr->oflags), 0};
    uroce_handle reply{};
    const int fd = attr->fd;
    const int error = session_of(context).call(UROCE_CMD_OPEN_XRCD, std::as_bytes(std::span(&request, 1)),
                                               std::as_writable_bytes(std::span(&reply, 1)),
                                               fd >= 0 ? std::span(&fd, 1) : std::span<const int>());
    if (error != 0) return null_with(error);
    xrcd->xrcd.context = context;
    xrcd->handle = reply.handle;
    return &xrcd.release()->xrcd;
  });
}

int close_xrcd(ibv_xrcd* xrcd) {
  const Verb verb("ibv_close_xrcd");
  auto* const closed = reinterpret_cast<Xrcd*>(xrcd);
  const int error = session_of(xrcd->context).release(UROCE_CMD_CLOSE_XRCD, closed->handle);
  if (error == 0) delete closed;
  return failed(error);
}

}  // namespace uroce::verbs

using namespace uroce;
using namespace uroce::verbs;

UROCE_EXPORT ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  const Verb verb("ibv_create_srq");
  return guarded<ibv_srq*>(nullptr, [&] { return make(pd->context, pd, {}, attr->attr, attr->srq_context); });
}
UROCE_VERSIONS_1_0_AND_1_1(create_srq, ibv_create_srq);

UROCE_EXPORT int modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
  const Verb verb("ibv_modify_srq");
  if ((mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) != 0) return failed(EINVAL);
  uroce_modify_srq_request request{};
  request.mask = static_cast<std::uint32_t>(mask);
  if ((mask & IBV_SRQ_MAX_WR) != 0) request.max_wr = attr->max_wr;
  if ((mask & IBV_SRQ_LIMIT) != 0) request.limit = attr->srq_limit;
  return guarded_errno([&] { return failed(as_srq(srq)->queue.modify(request)); });
}
UROCE_VERSIONS_1_0_AND_1_1(modify_srq, ibv_modify_srq);

UROCE_EXPORT int query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
  const Verb verb("ibv_query_srq");
  uroce_query_srq_response reply{};
  if (const int error = as_srq(srq)->queue.query(reply); error != 0) return failed(error);
  *attr = {reply.max_wr, reply.max_sge, reply.limit};
  return 0;
}
UROCE_VERSIONS_1_0_AND_1_1(query_srq, ibv_query_srq);

UROCE_EXPORT int destroy_srq(ibv_srq* srq) {
  const Verb verb("ibv_destroy_srq");
  Srq* const destroyed = as_srq(srq);
  Context& owner = *as_context(srq->context);
  if (const int error = destroyed->queue.destroy(); error != 0) return failed(error);
  {
    const std::lock_guard lock(owner.objects_mutex);
    owner.srqs.erase(destroyed->cookie);
  }
  as_pd(srq->pd)->users.fetch_sub(1);
  if (owner.session->connection_state() != client::ConnectionState::kForked) {
    discard_async_events(owner);
    pthread_mutex_lock(&srq->mutex);
    while (srq->events_completed != destroyed->async_delivered) pthread_cond_wait(&srq->cond, &srq->mutex);
    pthread_mutex_unlock(&srq->mutex);
  }
  pthread_cond_destroy(&srq->cond);
  pthread_mutex_destroy(&srq->mutex);
  delete destroyed;
  return 0;
}
UROCE_VERSIONS_1_0_AND_1_1(destroy_srq, ibv_destroy_srq);
