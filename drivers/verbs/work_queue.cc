// Work queues (ibv_create_wq(3)): receive queues for raw packets, to which an indirection table (rss.cc) assigns
// frames.
#include <memory>
#include <span>

#include "domain.h"
#include "events.h"
#include "export.h"
#include "objects.h"
#include "post.h"
#include "work_queue.h"

namespace uroce::verbs {
namespace {

int check(const ibv_wq_init_attr& attr) {
  if (attr.wq_type != IBV_WQT_RQ || attr.pd == nullptr || attr.cq == nullptr) return EINVAL;
  if ((attr.comp_mask & ~std::uint32_t{IBV_WQ_INIT_ATTR_FLAGS}) != 0) return EINVAL;
  if ((attr.comp_mask & IBV_WQ_INIT_ATTR_FLAGS) == 0) return 0;
  return (attr.create_flags & ~std::uint32_t{IBV_WQ_FLAGS_CVLAN_STRIPPING}) == 0 ? 0 : EOPNOTSUPP;
}

uroce_create_qp_request to_request(const ibv_wq_init_attr& attr) {
  uroce_create_qp_request request{};
  request.type = UROCE_QPT_WQ;
  request.pd = attr.pd->handle;
  request.recv_cq = attr.cq->handle;
  request.max_recv_wr = attr.max_wr;
  request.max_recv_sge = attr.max_sge;
  const bool flags = (attr.comp_mask & IBV_WQ_INIT_ATTR_FLAGS) != 0;
  if (flags && (attr.create_flags & IBV_WQ_FLAGS_CVLAN_STRIPPING) != 0) request.flags = UROCE_QP_STRIP_VLAN;
  return request;
}

void forget(Context& owner, std::uint64_t cookie) {
  const std::lock_guard lock(owner.objects_mutex);
  owner.wqs.erase(cookie);
}

bool is_transition(ibv_wq_state from, ibv_wq_state to) {
  switch (from) {
    case IBV_WQS_RESET: return to == IBV_WQS_RESET || to == IBV_WQS_RDY;
    case IBV_WQS_RDY: return true;
    default: return to != IBV_WQS_RDY;
  }
}

ibv_qp_state to_qp_state(ibv_wq_state state) {
  return state == IBV_WQS_RESET ? IBV_QPS_RESET : state == IBV_WQS_RDY ? IBV_QPS_RTR : IBV_QPS_ERR;
}

}  // namespace

// The inline function in infiniband/verbs.h initializes mutex and condition afterwards. No events occur before the
// work queue is ready.
ibv_wq* create_wq(ibv_context* context, ibv_wq_init_attr* attr) {
  const Verb verb("ibv_create_wq");
  return guarded<ibv_wq*>(nullptr, [&]() -> ibv_wq* {
    if (const int error = check(*attr); error != 0) return null_with(error);
    Context& owner = *as_context(context);
    auto wq = std::make_unique<Wq>();
    uroce_create_qp_request request = to_request(*attr);
    {
      const std::lock_guard lock(owner.objects_mutex);
      request.cookie = wq->cookie = owner.next_cookie++;
      owner.wqs.emplace(wq->cookie, wq.get());
    }
    if (const int error = client::QueuePair::create(*owner.session, request, wq->queue); error != 0) {
      forget(owner, wq->cookie);
      return null_with(error);
    }
    ibv_wq& made = wq->wq;
    made.context = context;
    made.pd = attr->pd;
    made.cq = attr->cq;
    made.wq_num = wq->queue.made().qpn;
    made.handle = wq->queue.made().handle;
    made.state = IBV_WQS_RESET;
    made.wq_type = IBV_WQT_RQ;
    made.post_recv = post_wq_recv;
    if (unlocked(attr->pd)) wq->queue.rq_lock.turn_off();
    as_cq(attr->cq)->queue.attach(&wq->queue, false, true);
    as_pd(attr->pd)->users.fetch_add(1);
    attr->max_wr = wq->queue.made().max_recv_wr;
    attr->max_sge = wq->queue.made().max_recv_sge;
    return &wq.release()->wq;
  });
}

int modify_wq(ibv_wq* wq, ibv_wq_attr* attr) {
  const Verb verb("ibv_modify_wq");
  constexpr std::uint32_t kKnown = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE | IBV_WQ_ATTR_FLAGS;
  if ((attr->attr_mask & ~kKnown) != 0) return noted(EINVAL);
  if ((attr->attr_mask & IBV_WQ_ATTR_CURR_STATE) != 0 && attr->curr_wq_state != wq->state) return noted(EINVAL);
  if ((attr->attr_mask & IBV_WQ_ATTR_FLAGS) != 0 && attr->flags_mask != 0) return noted(EOPNOTSUPP);
  if ((attr->attr_mask & IBV_WQ_ATTR_STATE) == 0) return 0;
  if (attr->wq_state < IBV_WQS_RESET || attr->wq_state > IBV_WQS_ERR || !is_transition(wq->state, attr->wq_state)) {
    return noted(EINVAL);
  }
  if (wq->state == attr->wq_state) return 0;
  Wq& modified = *as_wq(wq);
  uroce_modify_qp_request request{};
  request.handle = wq->handle;
  request.mask = IBV_QP_STATE;
  request.attr.state = to_qp_state(attr->wq_state);
  const int error = modified.queue.session().call(UROCE_CMD_MODIFY_QP, std::as_bytes(std::span(&request, 1)), {});
  if (error != 0) return noted(error);
  if (attr->wq_state == IBV_WQS_RESET) modified.queue.reset();
  std::atomic_ref(wq->state).store(attr->wq_state, std::memory_order_relaxed);
  return 0;
}

int destroy_wq(ibv_wq* wq) {
  const Verb verb("ibv_destroy_wq");
  Wq* const destroyed = as_wq(wq);
  Context& owner = *as_context(wq->context);
  if (destroyed->users.load() != 0) return noted(EBUSY);
  if (const int error = destroyed->queue.destroy(); error != 0) return noted(error);
  forget(owner, destroyed->cookie);
  as_pd(wq->pd)->users.fetch_sub(1);
  if (owner.session->connection_state() != client::ConnectionState::kForked) {
    as_cq(wq->cq)->queue.detach(&destroyed->queue);
    discard_async_events(owner);
    pthread_mutex_lock(&wq->mutex);
    while (wq->events_completed != destroyed->async_delivered) pthread_cond_wait(&wq->cond, &wq->mutex);
    pthread_mutex_unlock(&wq->mutex);
  }
  pthread_cond_destroy(&wq->cond);
  pthread_mutex_destroy(&wq->mutex);
  delete destroyed;
  return 0;
}

}  // namespace uroce::verbs
