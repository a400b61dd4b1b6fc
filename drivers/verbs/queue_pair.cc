// Queue pairs: ibv_create_qp(3), ibv_modify_qp(3), ibv_query_qp(3), ibv_destroy_qp(3).
#include <cstring>
#include <memory>

#include "address.h"
#include "domain.h"
#include "events.h"
#include "export.h"
#include "objects.h"
#include "post.h"
#include "query.h"
#include "queue_pair.h"
#include "rss.h"

namespace uroce::verbs {
namespace {

// Programs such as perftest set the attributes of RC for both XRC types. As in the kernel, those that the type
// lacks are ignored.
int meaningful(ibv_qp_type type, int mask) {
  if (type == IBV_QPT_XRC_SEND) return mask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (type == IBV_QPT_XRC_RECV) return mask & ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
  return mask;
}

uroce_qp_attr to_wire(const ibv_qp_attr& in, int mask) {
  uroce_qp_attr out{};
  out.state = in.qp_state;
  out.cur_state = in.cur_qp_state;
  out.path_mtu = in.path_mtu;
  out.qkey = in.qkey;
  out.rq_psn = in.rq_psn;
  out.sq_psn = in.sq_psn;
  out.dest_qpn = in.dest_qp_num;
  out.access_flags = in.qp_access_flags;
  out.sqd_notify = in.en_sqd_async_notify;
  out.pkey_index = in.pkey_index;
  out.port = in.port_num;
  out.timeout = in.timeout;
  out.retry_cnt = in.retry_cnt;
  out.rnr_retry = in.rnr_retry;
  out.min_rnr_timer = in.min_rnr_timer;
  out.max_rd_atomic = in.max_rd_atomic;
  out.max_dest_rd_atomic = in.max_dest_rd_atomic;
  out.path_mig_state = in.path_mig_state;
  // Programs built before rate_limit was added pass a shorter struct.
  if ((mask & IBV_QP_RATE_LIMIT) != 0) out.rate_limit = in.rate_limit;
  out.av = to_av(in.ah_attr);
  return out;
}

void from_wire(const uroce_query_qp_response& in, ibv_qp_attr& out) {
  std::memset(&out, 0, offsetof(ibv_qp_attr, rate_limit));
  const uroce_qp_attr& attr = in.attr;
  out.qp_state = static_cast<ibv_qp_state>(attr.state);
  out.cur_qp_state = static_cast<ibv_qp_state>(attr.state);
  out.path_mtu = static_cast<ibv_mtu>(attr.path_mtu);
  out.path_mig_state = static_cast<ibv_mig_state>(attr.path_mig_state);
  out.qkey = attr.qkey;
  out.rq_psn = attr.rq_psn;
  out.sq_psn = attr.sq_psn;
  out.dest_qp_num = attr.dest_qpn;
  out.qp_access_flags = attr.access_flags;
  out.pkey_index = static_cast<std::uint16_t>(attr.pkey_index);
  out.en_sqd_async_notify = static_cast<std::uint8_t>(attr.sqd_notify);
  out.sq_draining = static_cast<std::uint8_t>(in.sq_draining);
  out.max_rd_atomic = static_cast<std::uint8_t>(attr.max_rd_atomic);
  out.max_dest_rd_atomic = static_cast<std::uint8_t>(attr.max_dest_rd_atomic);
  out.min_rnr_timer = static_cast<std::uint8_t>(attr.min_rnr_timer);
  out.port_num = static_cast<std::uint8_t>(attr.port);
  out.timeout = static_cast<std::uint8_t>(attr.timeout);
  out.retry_cnt = static_cast<std::uint8_t>(attr.retry_cnt);
  out.rnr_retry = static_cast<std::uint8_t>(attr.rnr_retry);
  from_av(attr.av, out.ah_attr);
}

ibv_qp_cap granted(const uroce_create_qp_response& made) {
  return {made.max_send_wr, made.max_recv_wr, made.max_send_sge, made.max_recv_sge, made.max_inline};
}

void attach(Qp& qp) {
  ibv_cq* const send = qp.qp.send_cq;
  ibv_cq* const receive = qp.qp.recv_cq;
  if (send == receive) {
    if (send != nullptr) as_cq(send)->queue.attach(&qp.queue, true, true);
    return;
  }
  if (send != nullptr) as_cq(send)->queue.attach(&qp.queue, true, false);
  if (receive != nullptr) as_cq(receive)->queue.attach(&qp.queue, false, true);
}

void detach(Qp& qp) {
  if (qp.qp.send_cq != nullptr) as_cq(qp.qp.send_cq)->queue.detach(&qp.queue);
  if (qp.qp.recv_cq != nullptr) as_cq(qp.qp.recv_cq)->queue.detach(&qp.queue);
}

std::uint64_t remember(Context& context, Qp* qp) {
  prepare_events(qp->qp);
  const std::lock_guard lock(context.objects_mutex);
  const std::uint64_t cookie = context.next_cookie++;
  context.qps.emplace(cookie, qp);
  return cookie;
}

void forget(Context& context, std::uint64_t cookie) {
  const std::lock_guard lock(context.objects_mutex);
  context.qps.erase(cookie);
}

std::uint32_t create_flags(const ibv_qp_init_attr_ex& attr) {
  return (attr.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 ? attr.create_flags : 0;
}

std::uint32_t max_tso_header(const ibv_qp_init_attr_ex& attr) {
  return (attr.comp_mask & IBV_QP_INIT_ATTR_MAX_TSO_HEADER) != 0 ? attr.max_tso_header : 0;
}

// Fields that the type does not use are ignored: programs may leave them uninitialized.
uroce_create_qp_request to_request(const ibv_pd* pd, ibv_qp_init_attr_ex& attr) {
  const bool target = attr.qp_type == IBV_QPT_XRC_RECV, sends = !target;
  const bool receives = sends && attr.qp_type != IBV_QPT_XRC_SEND;
  if (!sends) attr.send_cq = nullptr;
  if (!receives) attr.recv_cq = nullptr, attr.srq = nullptr;
  if (!target) attr.xrcd = nullptr;
  uroce_create_qp_request request{};
  request.type = attr.qp_type;
  if (attr.sq_sig_all != 0) request.flags |= UROCE_QP_SIGNAL_ALL;
  if ((create_flags(attr) & IBV_QP_CREATE_BLOCK_SELF_MCAST_LB) != 0) request.flags |= UROCE_QP_BLOCK_OWN_MULTICAST;
  if (target) {
    request.xrcd = reinterpret_cast<const Xrcd*>(attr.xrcd)->handle;
    return request;
  }
  request.pd = pd->handle;
  request.send_cq = attr.send_cq->handle;
  request.max_send_wr = attr.cap.max_send_wr;
  request.max_send_sge = attr.cap.max_send_sge;
  request.max_inline = attr.cap.max_inline_data;
  if ((create_flags(attr) & IBV_QP_CREATE_CVLAN_STRIPPING) != 0) request.flags |= UROCE_QP_STRIP_VLAN;
  request.max_tso_header = max_tso_header(attr);
  if (!receives) return request;
  request.recv_cq = attr.recv_cq->handle;
  if (attr.srq != nullptr) {
    request.srq = attr.srq->handle;
  } else {
    request.max_recv_wr = attr.cap.max_recv_wr;
    request.max_recv_sge = attr.cap.max_recv_sge;
  }
  return request;
}

// The other create_flags concern the FCS, which the port's driver has removed, PCI devices, or IPoIB (a chosen
// QPN).
int check_extended(const ibv_qp_init_attr_ex& attr) {
  constexpr std::uint32_t kKnown =
      IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | IBV_QP_INIT_ATTR_CREATE_FLAGS;
  constexpr std::uint32_t kOfRaw =
      IBV_QP_INIT_ATTR_MAX_TSO_HEADER | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
  const bool raw = attr.qp_type == IBV_QPT_RAW_PACKET;
  if ((attr.comp_mask & ~(raw ? kKnown | kOfRaw : kKnown)) != 0) return EOPNOTSUPP;
  const std::uint32_t flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB | (raw ? IBV_QP_CREATE_CVLAN_STRIPPING : 0);
  if ((create_flags(attr) & ~flags) != 0) return EOPNOTSUPP;
  return max_tso_header(attr) <= UROCE_MAX_TSO_HEADER ? 0 : EINVAL;
}

int check(const ibv_pd* pd, const ibv_qp_init_attr_ex& attr) {
  switch (attr.qp_type) {
    case IBV_QPT_RC:
    case IBV_QPT_UC:
    case IBV_QPT_UD:
    case IBV_QPT_RAW_PACKET:
      return pd != nullptr && attr.send_cq != nullptr && attr.recv_cq != nullptr ? 0 : EINVAL;
    case IBV_QPT_XRC_SEND: return pd != nullptr && attr.send_cq != nullptr ? 0 : EINVAL;
    case IBV_QPT_XRC_RECV: return attr.xrcd != nullptr ? 0 : EINVAL;
    default: return EOPNOTSUPP;
  }
}

void fill(ibv_context* context, ibv_qp_type type, void* qp_context, Qp& qp) {
  ibv_qp& made = qp.qp;
  made.context = context;
  made.qp_context = qp_context;
  made.handle = qp.queue.made().handle;
  made.qp_num = qp.queue.made().qpn;
  set_state(made, IBV_QPS_RESET);
  made.qp_type = type;
  qp.packets = type == IBV_QPT_UD || type == IBV_QPT_RAW_PACKET;
  qp.flags = UROCE_SEND_FENCE | UROCE_SEND_SIGNALED | UROCE_SEND_SOLICITED | UROCE_SEND_INLINE;
  if (type == IBV_QPT_RAW_PACKET) qp.flags |= UROCE_SEND_IP_CSUM;
}

// Sets the largest frame size. errno: EOPNOTSUPP when the daemon's port does not support raw packets.
int ask_frames(ibv_context* context, const ibv_qp_init_attr_ex& attr, Qp& qp) {
  uroce_device_response device{};
  if (const int error = ask_device(context, device); error != 0) return error;
  qp.max_frame = device.max_frame;
  qp.max_tso_header = max_tso_header(attr);
  return device.max_raw_qp != 0 ? 0 : EOPNOTSUPP;
}

// Fields of `attr` after sq_sig_all are valid only if comp_mask has their bit.
Qp* create(ibv_context* context, ibv_pd* pd, ibv_qp_init_attr_ex& attr) {
  Context& owner = *as_context(context);
  if (const int error = check(pd, attr); error != 0) {
    return null_with(error, error == EINVAL ? "the PD, a CQ or the XRC domain is NULL"
                                            : "qp_type: there are RC, UC, UD, XRC_SEND, XRC_RECV and RAW_PACKET");
  }
  auto qp = std::make_unique<Qp>();
  if (attr.qp_type == IBV_QPT_RAW_PACKET) {
    if (const int error = ask_frames(context, attr, *qp); error != 0) return null_with(error);
  }
  uroce_create_qp_request request = to_request(pd, attr);
  request.cookie = qp->cookie = remember(owner, qp.get());
  if (const int error = client::QueuePair::create(*owner.session, request, qp->queue); error != 0) {
    forget(owner, qp->cookie);
    return null_with(error);
  }
  fill(context, attr.qp_type, attr.qp_context, *qp);
  qp->qp.pd = attr.qp_type == IBV_QPT_XRC_RECV ? nullptr : pd;
  qp->qp.send_cq = attr.send_cq;
  qp->qp.recv_cq = attr.recv_cq;
  qp->qp.srq = attr.srq;
  qp->xrcd = reinterpret_cast<Xrcd*>(attr.xrcd);
  qp->signal_all = attr.sq_sig_all != 0;
  if (attr.srq != nullptr) qp->queue.set_srq(&as_srq(attr.srq)->queue);
  if (unlocked(qp->qp.pd)) {
    qp->queue.sq_lock.turn_off();
    qp->queue.rq_lock.turn_off();
  }
  attach(*qp);
  if (qp->qp.pd != nullptr) as_pd(qp->qp.pd)->users.fetch_add(1);
  attr.cap = granted(qp->queue.made());
  return qp.release();
}

}  // namespace

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr) {
  const Verb verb("ibv_create_qp_ex");
  return guarded<ibv_qp*>(nullptr, [&]() -> ibv_qp* {
    if (const int error = check_extended(*attr); error != 0) {
      return null_with(error, "comp_mask, create_flags or max_tso_header asks for what this QP type does not have");
    }
    if ((attr->comp_mask & IBV_QP_INIT_ATTR_XRCD) == 0) attr->xrcd = nullptr;
    ibv_pd* const pd = (attr->comp_mask & IBV_QP_INIT_ATTR_PD) != 0 ? attr->pd : nullptr;
    const bool rss = (attr->comp_mask & (IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH)) != 0;
    Qp* const qp = rss ? create_rss_qp(context, pd, *attr) : create(context, pd, *attr);
    if (qp == nullptr) return nullptr;
    if ((attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0) {
      if (const int error = fill_work_requests(*qp, attr->send_ops_flags); error != 0) {
        ibv_destroy_qp(&qp->qp);
        return null_with(error);
      }
      qp->extended = true;
    }
    return &qp->qp;
  });
}

// typical_pkt_sz is a hint for devices that limit packets per second; this one limits bytes.
int modify_qp_rate_limit(ibv_qp* qp, ibv_qp_rate_limit_attr* attr) {
  const Verb verb("ibv_modify_qp_rate_limit");
  if (attr->comp_mask != 0) return noted(EINVAL);
  if (as_qp(qp)->table != nullptr) return noted(EOPNOTSUPP);
  if (attr->rate_limit == 0 && (attr->max_burst_sz != 0 || attr->typical_pkt_sz != 0)) return noted(EINVAL);
  uroce_modify_qp_request request{};
  request.handle = qp->handle;
  request.mask = IBV_QP_RATE_LIMIT;
  request.attr.rate_limit = attr->rate_limit;
  request.attr.rate_burst = attr->max_burst_sz;
  return session_of(qp->context).call(UROCE_CMD_MODIFY_QP, std::as_bytes(std::span(&request, 1)), {});
}

ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attr) {
  const Verb verb("ibv_open_qp");
  return guarded<ibv_qp*>(nullptr, [&]() -> ibv_qp* {
    constexpr std::uint32_t kNeeded = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    if ((attr->comp_mask & ~(kNeeded | IBV_QP_OPEN_ATTR_CONTEXT)) != 0) return null_with(EOPNOTSUPP);
    if ((attr->comp_mask & kNeeded) != kNeeded || attr->qp_type != IBV_QPT_XRC_RECV || attr->xrcd == nullptr) {
      return null_with(EINVAL);
    }
    Context& owner = *as_context(context);
    auto qp = std::make_unique<Qp>();
    uroce_open_qp_request request{};
    request.xrcd = reinterpret_cast<Xrcd*>(attr->xrcd)->handle;
    request.qpn = attr->qp_num;
    request.cookie = qp->cookie = remember(owner, qp.get());
    if (const int error = client::QueuePair::open(*owner.session, request, qp->queue); error != 0) {
      forget(owner, qp->cookie);
      return null_with(error);
    }
    const bool has_context = (attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT) != 0;
    fill(context, IBV_QPT_XRC_RECV, has_context ? attr->qp_context : nullptr, *qp);
    qp->xrcd = reinterpret_cast<Xrcd*>(attr->xrcd);
    return &qp.release()->qp;
  });
}

bool has_failed_in_rtr(Qp& qp) {
  if (state_of(qp.qp) != IBV_QPS_RTR) return false;
  const uroce_handle request{qp.qp.handle, 0};
  uroce_query_qp_response reply{};
  if (qp.queue.session().call(UROCE_CMD_QUERY_QP, request, reply) != 0) return false;
  if (reply.attr.state != IBV_QPS_ERR) return false;
  set_state(qp.qp, IBV_QPS_ERR);
  return true;
}

}  // namespace uroce::verbs

using namespace uroce;
using namespace uroce::verbs;

UROCE_EXPORT ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  const Verb verb("ibv_create_qp");
  return guarded<ibv_qp*>(nullptr, [&]() -> ibv_qp* {
    ibv_qp_init_attr_ex extended{};
    std::memcpy(static_cast<void*>(&extended), attr, sizeof(*attr));
    if (pd == nullptr) return null_with(EINVAL);
    Qp* const qp = create(pd->context, pd, extended);
    if (qp == nullptr) return nullptr;
    attr->cap = extended.cap;
    return &qp->qp;
  });
}
UROCE_VERSIONS_1_0_AND_1_1(create_qp, ibv_create_qp);

UROCE_EXPORT ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) { return as_qp(qp)->extended ? &as_qp(qp)->ex : nullptr; }

UROCE_EXPORT int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  const Verb verb("ibv_modify_qp");
  Qp& modified = *as_qp(qp);
  if (modified.table != nullptr) return failed(EOPNOTSUPP);  // the states are those of its work queues
  uroce_modify_qp_request request{};
  request.handle = qp->handle;
  request.mask = static_cast<std::uint32_t>(meaningful(qp->qp_type, mask));
  request.attr = to_wire(*attr, mask);
  const int error = modified.queue.session().call(UROCE_CMD_MODIFY_QP, std::as_bytes(std::span(&request, 1)), {});
  if (error != 0) return failed(error);
  if ((mask & IBV_QP_STATE) != 0) {
    set_state(*qp, attr->qp_state);
    if (attr->qp_state == IBV_QPS_RESET) {
      modified.queue.reset();
      for (ibv_cq* cq : {qp->send_cq, qp->recv_cq}) {
        if (cq != nullptr) as_cq(cq)->queue.purge(qp->qp_num);
      }
    }
  }
  return 0;
}
UROCE_VERSIONS_1_0_AND_1_1(modify_qp, ibv_modify_qp);

UROCE_EXPORT int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) {
  const Verb verb("ibv_query_qp");
  const Qp& object = *as_qp(qp);
  if (object.table != nullptr) return failed(EOPNOTSUPP);
  const uroce_handle request{qp->handle, 0};
  uroce_query_qp_response reply{};
  if (const int error = object.queue.session().call(UROCE_CMD_QUERY_QP, request, reply); error != 0) {
    return failed(error);
  }
  from_wire(reply, *attr);
  // then the struct is long enough for it
  if ((mask & IBV_QP_RATE_LIMIT) != 0) attr->rate_limit = reply.attr.rate_limit;
  attr->cap = granted(object.queue.made());
  set_state(*qp, attr->qp_state);
  *init = {};
  init->qp_context = qp->qp_context;
  init->send_cq = qp->send_cq;
  init->recv_cq = qp->recv_cq;
  init->srq = qp->srq;
  init->cap = attr->cap;
  init->qp_type = qp->qp_type;
  init->sq_sig_all = object.signal_all;
  return 0;
}
UROCE_VERSIONS_1_0_AND_1_1(query_qp, ibv_query_qp);

UROCE_EXPORT int destroy_qp(ibv_qp* qp) {
  const Verb verb("ibv_destroy_qp");
  Qp* const destroyed = as_qp(qp);
  Context& owner = *as_context(qp->context);
  if (const int error = destroyed->queue.destroy(); error != 0) return failed(error);
  forget(owner, destroyed->cookie);
  if (qp->pd != nullptr) as_pd(qp->pd)->users.fetch_sub(1);
  if (destroyed->table != nullptr) destroyed->table->users.fetch_sub(1);
  if (owner.session->connection_state() != client::ConnectionState::kForked) {
    detach(*destroyed);
    discard_async_events(owner);
    pthread_mutex_lock(&qp->mutex);
    while (qp->events_completed != destroyed->async_delivered) pthread_cond_wait(&qp->cond, &qp->mutex);
    pthread_mutex_unlock(&qp->mutex);
  }
  pthread_cond_destroy(&qp->cond);
  pthread_mutex_destroy(&qp->mutex);
  delete destroyed;
  return 0;
}
UROCE_VERSIONS_1_0_AND_1_1(destroy_qp, ibv_destroy_qp);
