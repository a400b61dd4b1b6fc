// CREATE_QP, DESTROY_QP.
#include <algorithm>
#include <bit>

#include "control/commands/command.h"
#include "control/session/privilege.h"
#include "control/state/worker_commands.h"

namespace uroce::control::commands {
namespace {

constexpr std::size_t kLine = UROCE_CACHE_LINE;
constexpr std::uint32_t kKnownFlags = UROCE_QP_SIGNAL_ALL | UROCE_QP_BLOCK_OWN_MULTICAST | UROCE_QP_STRIP_VLAN;

/// Geometry of the queues, as granted. A queue that the QP does not have has 0 entries.
struct Shape {
  std::uint32_t sq_entries = 0, sq_stride = 0, rq_entries = 0, rq_stride = 0;

  std::size_t sq_bytes() const { return std::size_t{sq_entries} * sq_stride; }
  std::size_t rq_bytes() const { return std::size_t{rq_entries} * rq_stride; }
  std::size_t client_bytes() const { return sizeof(uroce_qp_client_block) + sq_bytes() + rq_bytes(); }
};

std::uint32_t round_up(std::uint32_t value, std::uint32_t unit) { return (value + unit - 1) / unit * unit; }

proto::QpType type_of(const uroce_create_qp_request& request) { return static_cast<proto::QpType>(request.type); }

bool is_xrc_target(const uroce_create_qp_request& request) { return type_of(request) == proto::QpType::kXrcRecv; }

bool sends_to_groups(proto::QpType type) { return type == proto::QpType::kUd || type == proto::QpType::kRawPacket; }

bool blocks_own_multicast(const uroce_create_qp_request& request) {
  return (request.flags & UROCE_QP_BLOCK_OWN_MULTICAST) != 0;
}

/// The queues and objects that each type has.
int check_type(const Call& call, const uroce_create_qp_request& request) {
  const auto surplus = [&call] {
    return call.refuse(EINVAL,
                       "the request names a CQ, an SRQ, an XRC domain or a flag that this QP type does not have");
  };
  switch (request.type <= 0xff ? type_of(request) : proto::QpType{}) {
    case proto::QpType::kRc:
    case proto::QpType::kUc:
    case proto::QpType::kUd:
    case proto::QpType::kRawPacket:
      if (request.xrcd != 0) return surplus();
      return blocks_own_multicast(request) && !sends_to_groups(type_of(request)) ? surplus() : 0;
    case proto::QpType::kWq:
      if ((request.send_cq | request.srq | request.xrcd) != 0 || blocks_own_multicast(request)) return surplus();
      return (request.max_send_wr | request.max_send_sge | request.max_inline) != 0 ? surplus() : 0;
    case proto::QpType::kXrcSend:
      return (request.recv_cq | request.srq | request.xrcd) != 0 || blocks_own_multicast(request) ? surplus() : 0;
    case proto::QpType::kXrcRecv:
      return (request.pd | request.send_cq | request.recv_cq | request.srq) != 0 ? surplus() : 0;
    default:
      return call.refuse(EOPNOTSUPP, "QP type %u; there are RC (2), UC (3), UD (4), RAW_PACKET (8) and XRC (9, 10)",
                         request.type);
  }
}

int check(const Call& call, const uroce_create_qp_request& request) {
  if (const int error = check_type(call, request)) return error;
  if (is_xrc_target(request)) return 0;
  const std::uint32_t most_header = type_of(request) == proto::QpType::kRawPacket ? UROCE_MAX_TSO_HEADER : 0;
  if (!call.within("max_send_wr", request.max_send_wr, 0, kMaxQpWr) ||
      !call.within("max_recv_wr", request.max_recv_wr, 0, kMaxQpWr) ||
      !call.within("max_send_sge", request.max_send_sge, 0, kMaxSge) ||
      !call.within("max_recv_sge", request.max_recv_sge, 0, kMaxSge) ||
      !call.within("max_inline_data", request.max_inline, 0, kMaxInline) ||
      !call.within("max_tso_header", request.max_tso_header, 0, most_header)) {
    return EINVAL;
  }
  if ((request.flags & ~kKnownFlags) != 0 || request.reserved != 0) {
    return call.refuse(EINVAL, "flags 0x%x are not known", request.flags & ~kKnownFlags);
  }
  if ((request.flags & UROCE_QP_STRIP_VLAN) != 0 && !proto::is_raw(type_of(request))) {
    return call.refuse(EINVAL, "VLAN stripping is for raw packet QPs and WQs only");
  }
  return 0;
}

Shape shape_of(const uroce_create_qp_request& request) {
  const std::uint32_t send_sges = std::max(request.max_send_sge, 1u),
                      recv_sges = std::max(request.max_recv_sge, 1u);
  const std::uint32_t sq_payload =
      std::max(static_cast<std::uint32_t>(send_sges * sizeof(uroce_sge)), request.max_inline) +
      request.max_tso_header;
  Shape shape;
  if (proto::has_send_queue(type_of(request))) {
    shape.sq_entries = std::bit_ceil(std::max(request.max_send_wr, 1u));
    shape.sq_stride = static_cast<std::uint32_t>(kLine) + round_up(sq_payload, kLine);
  }
  if (request.srq != 0 || type_of(request) == proto::QpType::kXrcSend) return shape;
  shape.rq_entries = std::bit_ceil(std::max(request.max_recv_wr, 1u));
  shape.rq_stride =
      round_up(static_cast<std::uint32_t>(sizeof(uroce_rq_entry) + recv_sges * sizeof(uroce_sge)), 32);
  return shape;
}

// Inline bytes that fit into an entry besides the TSO header.
std::uint32_t max_inline_of(const Shape& shape, const uroce_create_qp_request& request) {
  if (shape.sq_entries == 0) return 0;
  return shape.sq_stride - static_cast<std::uint32_t>(kLine) - request.max_tso_header;
}

bool find_objects(Session& session, const uroce_create_qp_request& request, QpObject& qp) {
  qp.pd = session.pds.find(request.pd);
  if (proto::has_send_queue(qp.type)) {
    qp.send_cq = session.cqs.find(request.send_cq);
    if (qp.send_cq == nullptr) return false;
  }
  if (qp.pd == nullptr) return false;
  if (qp.type == proto::QpType::kXrcSend) return true;
  qp.recv_cq = session.cqs.find(request.recv_cq);
  if (request.srq != 0) {
    qp.srq = session.srqs.find(request.srq);
    if (qp.srq == nullptr || qp.srq->xrcd != nullptr) return false;
  }
  return qp.recv_cq != nullptr;
}

void count_users(QpObject& qp, std::uint32_t change) {
  if (qp.pd != nullptr) qp.pd->users += change;
  if (qp.send_cq != nullptr) qp.send_cq->users += change;
  if (qp.recv_cq != nullptr) qp.recv_cq->users += change;
  if (qp.srq != nullptr) qp.srq->users += change;
  if (qp.xrcd != nullptr) qp.xrcd->users += change;
}

// Only QPs that respond to READs and atomics need responder resources.
bool answers(proto::QpType type) { return type == proto::QpType::kRc; }

// Memory, number and doorbell. After a failure, drop() releases what was acquired.
int acquire(ControlState& state, Session& session, const Shape& shape, QpObject& qp) {
  const auto client = session.arena.allocate(mapping::ChunkKind::kClientWrites, shape.client_bytes());
  if (client) qp.client = *client;
  const auto daemon = session.arena.allocate(mapping::ChunkKind::kDaemonWrites, sizeof(uroce_qp_daemon_block));
  if (daemon) qp.daemon = *daemon;
  if (shape.sq_entries != 0) qp.sq_shadow = PrivateBlock(shape.sq_bytes());
  if (answers(qp.type)) qp.responder_resources = state.responder_slots().allocate();
  if (!client || !daemon || (shape.sq_entries != 0 && !qp.sq_shadow.valid())) return ENOMEM;
  if (answers(qp.type) && !qp.responder_resources) return ENOMEM;
  // The link worker receives all frames that are not RoCE.
  qp.worker = proto::is_raw(qp.type) ? worker::kLinkWorker : state.choose_worker();
  const auto bit = session.bits[qp.worker].allocate();
  if (!bit) return ENOMEM;
  qp.bit = *bit;
  const auto qpn = state.allocate_qpn(qp.worker, session.peer.tenant());
  if (!qpn) {
    session.bits[qp.worker].free.push_back(qp.bit);
    return ENOMEM;
  }
  qp.qpn = *qpn;
  return 0;
}

void drop(ControlState& state, Session& session, const QpObject& qp) {
  if (qp.qpn.value != 0) {
    state.release_qpn(qp.worker, qp.qpn);
    session.bits[qp.worker].free.push_back(qp.bit);
  }
  if (qp.client.data != nullptr) session.arena.free(qp.client);
  if (qp.daemon.data != nullptr) session.arena.free(qp.daemon);
}

proto::QpCreate describe(ControlState& state, const Session& session, const uroce_create_qp_request& request,
                         const Shape& shape, const QpObject& qp) {
  auto* client = reinterpret_cast<uroce_qp_client_block*>(qp.client.data);
  auto* daemon = reinterpret_cast<uroce_qp_daemon_block*>(qp.daemon.data);
  std::byte* const sq = qp.client.data + sizeof(uroce_qp_client_block);
  std::byte* const rq = sq + shape.sq_bytes();
  proto::QpCreate create;
  create.type = qp.type;
  create.qpn = qp.qpn;
  create.pd = qp.pd->id;
  create.recv_cq = qp.recv_cq != nullptr ? qp.recv_cq->id : qp.send_cq->id;
  create.send_cq = qp.send_cq != nullptr ? qp.send_cq->id : create.recv_cq;
  create.has_srq = qp.srq != nullptr;
  if (qp.srq != nullptr) create.srq = qp.srq->id;
  create.signal_all = (request.flags & UROCE_QP_SIGNAL_ALL) != 0;
  create.block_own_multicast = blocks_own_multicast(request);
  create.strip_vlan = (request.flags & UROCE_QP_STRIP_VLAN) != 0;
  if (shape.sq_entries != 0) {
    create.sq =
        queue::WorkConsumer({sq, shape.sq_entries, shape.sq_stride}, &client->sq.index, &daemon->sq_consumer);
  }
  if (shape.rq_entries != 0) {
    create.rq =
        queue::WorkConsumer({rq, shape.rq_entries, shape.rq_stride}, &client->rq.index, &daemon->rq_consumer);
  }
  create.max_send_sge = std::max(request.max_send_sge, 1u);
  create.max_recv_sge = std::max(request.max_recv_sge, 1u);
  create.max_inline = max_inline_of(shape, request);
  create.max_tso_header = request.max_tso_header;
  if (shape.sq_entries != 0) create.sq_shadow = qp.sq_shadow.span().first(shape.sq_bytes());
  create.responder_resources = state.responder_slots().span(qp.responder_resources);
  create.owner = session.id;
  create.user = session.peer.uid;
  create.share = state.share_of(session.peer.uid);
  create.faults = qp.faults.get();
  return create;
}

uroce_create_qp_response respond(const uroce_create_qp_request& request, const Shape& shape, const QpObject& qp) {
  uroce_create_qp_response r{};
  r.qpn = qp.qpn.value;
  r.worker = qp.worker;
  r.doorbell_bit = qp.bit;
  r.max_send_wr = shape.sq_entries;
  r.max_recv_wr = shape.rq_entries;
  r.max_send_sge = shape.sq_entries != 0 ? std::max(request.max_send_sge, 1u) : 0;
  r.max_recv_sge = shape.rq_entries != 0 ? std::max(request.max_recv_sge, 1u) : 0;
  r.max_inline = max_inline_of(shape, request);
  r.sq_entries = shape.sq_entries;
  r.sq_stride = shape.sq_stride;
  r.rq_entries = shape.rq_entries;
  r.rq_stride = shape.rq_stride;
  r.client = r.sq = r.rq = qp.client.place;
  r.sq.offset += sizeof(uroce_qp_client_block);
  r.rq.offset = r.sq.offset + shape.sq_bytes();
  r.daemon = qp.daemon.place;
  return r;
}

int create_target(Call& call, const uroce_create_qp_request& request) {
  Session& session = call.session;
  auto qp = std::make_unique<QpObject>();
  qp->type = proto::QpType::kXrcRecv;
  qp->xrcd = session.xrcds.find(request.xrcd);
  if (qp->xrcd == nullptr) return EINVAL;
  qp->charge = call.state.charge(session, {.qps = 1});
  if (!qp->charge) return ENOMEM;
  if (const int error = make_xrc_target(call.state, session, qp->xrcd->domain, qp->target)) return error;
  call.reply.put(add_target(call.events, session, std::move(qp), request.cookie));
  return 0;
}

}  // namespace

uroce_create_qp_response add_target(EventRouter& events, Session& session, std::unique_ptr<QpObject> qp,
                                    std::uint64_t cookie) {
  XrcTarget& target = *qp->target;
  ++target.users;
  qp->qpn = target.qpn;
  qp->worker = target.worker;
  qp->index = target.index;
  qp->cookie = cookie;
  count_users(*qp, 1);
  events.add_qp(qp->qpn, session, cookie);
  uroce_create_qp_response response{};
  response.qpn = qp->qpn.value;
  response.worker = qp->worker;
  response.handle = session.qps.add(std::move(qp));
  return response;
}

int create_qp(Call& call) {
  uroce_create_qp_request request;
  if (!call.read(request)) return EINVAL;
  if (const int error = check(call, request)) return error;
  if (is_xrc_target(request)) return create_target(call, request);
  Session& session = call.session;
  if (proto::is_raw(type_of(request)) && call.state.port().sockets_only()) {
    return call.refuse(EOPNOTSUPP, "port %s carries no raw packets, only RoCE; use another kind of port",
                       call.state.config().port.c_str());
  }
  if (type_of(request) == proto::QpType::kRawPacket && !may_use_raw_packets(session)) {
    return call.refuse(EPERM, "a raw packet QP takes CAP_NET_RAW in the daemon's network namespace");
  }
  auto qp = std::make_unique<QpObject>();
  qp->type = type_of(request);
  if (!find_objects(session, request, *qp)) {
    return call.refuse(EINVAL,
                       "the PD (%u), send CQ (%u), receive CQ (%u) or SRQ (%u) is missing or of another kind",
                       request.pd, request.send_cq, request.recv_cq, request.srq);
  }
  const Shape shape = shape_of(request);
  // Blocks in shared memory are charged by the chunk.
  qp->charge = call.state.charge(session, {.qps = 1, .queue_bytes = shape.sq_bytes()});
  if (!qp->charge) return ENOMEM;
  int error = acquire(call.state, session, shape, *qp);
  if (error == 0) {
    qp->faults = call.state.verb_faults().faults_of(session, *qp);
    const proto::QpCreate create = describe(call.state, session, request, shape, *qp);
    worker_commands::CreateQp on_worker{create, session.ports[qp->worker].get(), qp->bit};
    call.state.worker(qp->worker).call(on_worker);
    error = on_worker.error;
    qp->index = on_worker.index;
  }
  if (error != 0) {
    drop(call.state, session, *qp);
    return error;
  }
  qp->cookie = request.cookie;
  count_users(*qp, 1);
  ++call.state.qps_of_worker(qp->worker);
  call.events.add_qp(qp->qpn, session, request.cookie);
  uroce_create_qp_response response = respond(request, shape, *qp);
  response.chunks = session.arena.take_new_chunks(call.reply.fds);
  response.handle = session.qps.add(std::move(qp));
  call.reply.put(response);
  return 0;
}

int destroy_qp(Call& call) {
  uroce_handle request;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  Session& session = call.session;
  QpObject* qp = session.qps.find(request.handle);
  if (qp == nullptr) return ENOENT;
  if (!qp->groups.empty()) {  // IBTA vol. 1, o10-2.2.3
    return call.refuse(EBUSY, "QP 0x%06x is attached to %zu multicast groups; detach it first", qp->qpn.value,
                       qp->groups.size());
  }
  if (qp->users != 0) return call.in_use("QP", qp->users, "flows or RSS tables");
  call.events.remove_qp(session, *qp);
  EventRouter::forget(session, qp->cookie);
  if (qp->connected) --session.connected_qps;
  count_users(*qp, ~0u);
  if (qp->target) {
    release_xrc_target(call.state, *qp->target);
  } else {
    call.state.worker(qp->worker)
        .call(worker_commands::DestroyQp{qp->qpn, qp->index, session.ports[qp->worker].get(), qp->bit});
    --call.state.qps_of_worker(qp->worker);
    forget_queued_handles(call.state, session, *qp);
    release_counters(*qp);
    drop(call.state, session, *qp);
  }
  session.qps.erase(request.handle);
  return 0;
}

}  // namespace uroce::control::commands
