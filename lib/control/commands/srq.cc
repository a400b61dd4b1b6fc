// CREATE_SRQ, MODIFY_SRQ, QUERY_SRQ, DESTROY_SRQ.
#include <algorithm>
#include <bit>

#include "control/commands/command.h"
#include "control/state/worker_commands.h"

namespace uroce::control::commands {

using mapping::ChunkKind;

namespace {

constexpr std::uint32_t kBasic = 0, kXrc = 1;  // ibv_srq_type

std::uint32_t stride_of(std::uint32_t max_sge) {
  constexpr std::uint32_t kUnit = 32;
  const auto bytes = static_cast<std::uint32_t>(sizeof(uroce_rq_entry) + max_sge * sizeof(uroce_sge));
  return (bytes + kUnit - 1) / kUnit * kUnit;
}

int check(const Call& call, const uroce_create_srq_request& request) {
  if (request.type > kXrc) {
    return call.refuse(EOPNOTSUPP, "SRQ type %u; there are basic (0) and XRC (1)", request.type);
  }
  if (request.reserved != 0 || !call.within("max_wr", request.max_wr, 1, kMaxSrqWr) ||
      !call.within("max_sge", request.max_sge, 0, kMaxSge) ||
      !call.within("srq_limit", request.limit, 0, request.max_wr)) {
    return EINVAL;
  }
  return request.type == kBasic && (request.xrcd | request.cq) != 0 ? EINVAL : 0;
}

bool find_objects(Session& session, const uroce_create_srq_request& request, SrqObject& srq) {
  srq.pd = session.pds.find(request.pd);
  if (request.type == kBasic) return srq.pd != nullptr;
  srq.xrcd = session.xrcds.find(request.xrcd);
  srq.cq = session.cqs.find(request.cq);
  return srq.pd != nullptr && srq.xrcd != nullptr && srq.cq != nullptr;
}

void count_users(const SrqObject& srq, std::uint32_t change) {
  srq.pd->users += change;
  if (srq.xrcd != nullptr) srq.xrcd->users += change;
  if (srq.cq != nullptr) srq.cq->users += change;
}

void drop(ControlState& state, Session& session, const SrqObject& srq) {
  if (srq.id.value != 0) state.srq_ids().release(srq.id.value);
  for (const mapping::SharedBlock* block : {&srq.client, &srq.daemon, &srq.ring}) {
    if (block->data != nullptr) session.arena.free(*block);
  }
}

// After a failure, drop() releases what was acquired.
int acquire(ControlState& state, Session& session, SrqObject& srq) {
  const auto take = [&](ChunkKind kind, std::size_t bytes, mapping::SharedBlock& out) {
    const auto block = session.arena.allocate(kind, bytes);
    if (block) out = *block;
    return block.has_value();
  };
  if (!take(ChunkKind::kClientWrites, sizeof(uroce_producer_line), srq.client) ||
      !take(ChunkKind::kDaemonWrites, sizeof(uroce_srq_daemon_block), srq.daemon) ||
      !take(ChunkKind::kClientWrites, std::size_t{srq.entries} * srq.stride, srq.ring)) {
    return ENOMEM;
  }
  const auto id = state.srq_ids().allocate();
  if (!id) return ENOMEM;
  srq.id = SrqId{*id};
  return 0;
}

queue::WorkConsumer consumer_of(const SrqObject& srq, const mapping::SharedBlock& ring, std::uint32_t entries) {
  return {{ring.data, entries, srq.stride},
          &reinterpret_cast<uroce_producer_line*>(srq.client.data)->index,
          &reinterpret_cast<uroce_srq_daemon_block*>(srq.daemon.data)->consumer};
}

void start(ControlState& state, const Session& session, SrqObject& srq) {
  proto::SrqCreate create;
  create.id = srq.id;
  create.pd = srq.pd->id;
  create.owner = session.id;
  create.xrc = srq.xrcd != nullptr;
  if (srq.xrcd != nullptr) create.xrcd = srq.xrcd->domain->id;
  if (srq.cq != nullptr) create.cq = srq.cq->id;
  create.ring = consumer_of(srq, srq.ring, srq.entries);
  create.max_sge = srq.max_sge;
  srq.srq = std::make_unique<proto::Srq>(create);
  state.on_all_workers(worker_commands::SetSrq{srq.id, srq.srq.get()});
}

// With fewer receives posted than the limit, the event is raised at once.
void set_limit(EventRouter& events, Session& session, SrqObject& srq, std::uint32_t limit) {
  if (!srq.srq->set_limit(limit)) return;
  events.send(session, {static_cast<std::uint32_t>(proto::AsyncEvent::kSrqLimitReached), 0, srq.cookie});
}

int resize(Call& call, SrqObject& srq, std::uint32_t max_wr, uroce_modify_srq_response& response) {
  Session& session = call.session;
  const std::uint32_t entries = std::bit_ceil(max_wr);
  const auto ring = session.arena.allocate(ChunkKind::kClientWrites, std::size_t{entries} * srq.stride);
  if (!ring || !srq.srq->resize(consumer_of(srq, *ring, entries))) {
    if (ring) session.arena.free(*ring);
    return ring ? EINVAL : ENOMEM;
  }
  session.arena.free(srq.ring);
  srq.ring = *ring;
  srq.entries = entries;
  response.entries = entries;
  response.ring = ring->place;
  response.chunks = session.arena.take_new_chunks(call.reply.fds);
  return 0;
}

}  // namespace

int create_srq(Call& call) {
  uroce_create_srq_request request;
  if (!call.read(request)) return EINVAL;
  if (const int error = check(call, request)) return error;
  Session& session = call.session;
  auto srq = std::make_unique<SrqObject>();
  if (!find_objects(session, request, *srq)) return EINVAL;
  srq->entries = std::bit_ceil(request.max_wr);
  srq->max_sge = std::max(request.max_sge, 1u);
  srq->stride = stride_of(srq->max_sge);
  srq->cookie = request.cookie;
  srq->charge = call.state.charge(session, {.srqs = 1});
  if (!srq->charge) return ENOMEM;
  if (const int error = acquire(call.state, session, *srq)) {
    drop(call.state, session, *srq);
    return error;
  }
  count_users(*srq, 1);
  start(call.state, session, *srq);
  call.events.add_srq(srq->id, session, request.cookie);
  set_limit(call.events, session, *srq, request.limit);
  uroce_create_srq_response response{};
  response.srqn = srq->id.value;
  response.max_wr = response.entries = srq->entries;
  response.max_sge = srq->max_sge;
  response.stride = srq->stride;
  response.client = srq->client.place;
  response.daemon = srq->daemon.place;
  response.ring = srq->ring.place;
  response.chunks = session.arena.take_new_chunks(call.reply.fds);
  response.handle = session.srqs.add(std::move(srq));
  call.reply.put(response);
  return 0;
}

int modify_srq(Call& call) {
  uroce_modify_srq_request request;
  if (!call.read(request) || (request.mask & ~(UROCE_SRQ_MAX_WR | UROCE_SRQ_LIMIT)) != 0) return EINVAL;
  SrqObject* srq = call.session.srqs.find(request.handle);
  if (srq == nullptr) return EINVAL;
  const bool resizes = (request.mask & UROCE_SRQ_MAX_WR) != 0, limits = (request.mask & UROCE_SRQ_LIMIT) != 0;
  if (resizes && !call.within("max_wr", request.max_wr, 1, kMaxSrqWr)) return EINVAL;
  const std::uint32_t most_limit = resizes ? std::bit_ceil(request.max_wr) : srq->entries;
  if (limits && !call.within("srq_limit", request.limit, 0, most_limit)) return EINVAL;
  uroce_modify_srq_response response{};
  if (resizes) {
    if (const int error = resize(call, *srq, request.max_wr, response)) return error;
  }
  response.max_wr = srq->entries;
  if (limits) set_limit(call.events, call.session, *srq, request.limit);
  call.reply.put(response);
  return 0;
}

int query_srq(Call& call) {
  uroce_handle request;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  const SrqObject* srq = call.session.srqs.find(request.handle);
  if (srq == nullptr) return EINVAL;
  call.reply.put(uroce_query_srq_response{srq->entries, srq->max_sge, srq->srq->limit(), 0});
  return 0;
}

int destroy_srq(Call& call) {
  uroce_handle request;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  Session& session = call.session;
  SrqObject* srq = session.srqs.find(request.handle);
  if (srq == nullptr) return ENOENT;
  if (srq->users != 0) return call.in_use("SRQ", srq->users, "QPs");
  call.state.on_all_workers(worker_commands::SetSrq{srq->id, nullptr});
  call.events.remove_srq(srq->id);
  EventRouter::forget(session, srq->cookie);
  count_users(*srq, ~0u);
  drop(call.state, session, *srq);
  session.srqs.erase(request.handle);
  return 0;
}

}  // namespace uroce::control::commands
