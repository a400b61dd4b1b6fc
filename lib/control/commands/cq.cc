// CREATE_CQ, RESIZE_CQ, MODIFY_CQ, DESTROY_CQ.
#include <bit>

#include "control/commands/command.h"
#include "control/state/worker_commands.h"
#include "platform/clock.h"

namespace uroce::control::commands {
namespace {

int place(Call& call, CqObject& object) {
  Session& session = call.session;
  const std::size_t ring_bytes = std::size_t{object.entries} * sizeof(uroce_cqe);
  object.charge = call.state.charge(session, {.cqs = 1});
  if (!object.charge) return ENOMEM;
  const auto ring = session.arena.allocate(mapping::ChunkKind::kDaemonWrites, ring_bytes);
  const auto client = ring
                          ? session.arena.allocate(mapping::ChunkKind::kClientWrites, sizeof(uroce_cq_client_block))
                          : std::nullopt;
  const auto id = client ? call.state.cq_ids().allocate() : std::nullopt;
  if (!id) {
    if (client) session.arena.free(*client);
    if (ring) session.arena.free(*ring);
    return ENOMEM;
  }
  object.ring = *ring;
  object.client = *client;
  object.id = CqId{*id};
  return 0;
}

}  // namespace

int create_cq(Call& call) {
  uroce_create_cq_request request;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  if ((request.flags & ~std::uint32_t{UROCE_CQ_IGNORE_OVERRUN | UROCE_CQ_TIMESTAMPS}) != 0) {
    return call.refuse(EINVAL, "CQ flags 0x%x; allowed are IGNORE_OVERRUN (1) and TIMESTAMPS (2)", request.flags);
  }
  if (!call.within("cqe", request.entries, 1, kMaxCqe)) return EINVAL;
  Session& session = call.session;
  ChannelObject* channel = request.channel != 0 ? session.channels.find(request.channel) : nullptr;
  if (request.channel != 0 && channel == nullptr) return EINVAL;
  auto object = std::make_unique<CqObject>();
  object->entries = std::bit_ceil(request.entries);
  if (const int error = place(call, *object)) return error;
  object->cookie = request.cookie;
  object->channel = channel;
  object->cq = std::make_unique<worker::Cq>(reinterpret_cast<uroce_cqe*>(object->ring.data), object->entries,
                                            reinterpret_cast<uroce_cq_client_block*>(object->client.data));
  worker::Cq& cq = *object->cq;
  cq.cookie = request.cookie;
  cq.channel_fd = channel != nullptr ? channel->writer.get() : -1;
  cq.set_ignore_overrun((request.flags & UROCE_CQ_IGNORE_OVERRUN) != 0);
  if ((request.flags & UROCE_CQ_TIMESTAMPS) != 0) cq.set_clock(monotonic_now);
  cq.set_shared(call.state.worker_count() > 1);
  if (channel != nullptr) ++channel->users;
  const CqId id = object->id;
  call.state.on_all_workers(worker_commands::SetCq{id, &cq, session.id});
  call.events.add_cq(id, session, request.cookie);

  uroce_create_cq_response response{};
  response.entries = object->entries;
  response.ring = object->ring.place;
  response.client = object->client.place;
  response.chunks = session.arena.take_new_chunks(call.reply.fds);
  response.handle = session.cqs.add(std::move(object));
  call.reply.put(response);
  return 0;
}

int resize_cq(Call& call) {
  uroce_resize_cq_request request;
  if (!call.read(request) || !call.within("cqe", request.entries, 1, kMaxCqe)) return EINVAL;
  Session& session = call.session;
  CqObject* object = session.cqs.find(request.handle);
  if (object == nullptr) return EINVAL;
  const std::uint32_t entries = std::bit_ceil(request.entries);
  const auto ring =
      session.arena.allocate(mapping::ChunkKind::kDaemonWrites, std::size_t{entries} * sizeof(uroce_cqe));
  bool moved = false;
  if (ring) {
    // On a worker's thread: with one worker, no entry is added at the same time; with several, the CQ is locked.
    worker_commands::ResizeCq resize{object->id, *object->cq, reinterpret_cast<uroce_cqe*>(ring->data), entries};
    call.state.link_worker().call(resize);
    moved = resize.resized;
  }
  if (!moved) {
    if (ring) session.arena.free(*ring);
    if (!ring) return ENOMEM;
    return call.refuse(EINVAL, "the completions that were not polled yet do not fit into %u entries", entries);
  }
  session.arena.free(object->ring);
  object->ring = *ring;
  object->entries = entries;
  uroce_resize_cq_response response{};
  response.entries = entries;
  response.ring = ring->place;
  response.chunks = session.arena.take_new_chunks(call.reply.fds);
  call.reply.put(response);
  return 0;
}

int modify_cq(Call& call) {
  constexpr std::uint32_t kMost = 0xffff;
  uroce_modify_cq_request request;
  if (!call.read(request) || request.reserved != 0 || !call.within("cq_count", request.count, 0, kMost) ||
      !call.within("cq_period", request.period_us, 0, kMost)) {
    return EINVAL;
  }
  const CqObject* object = call.session.cqs.find(request.handle);
  if (object == nullptr) return EINVAL;
  // Without a time limit, fewer entries than `count` would never raise an event.
  const std::uint32_t period_us = request.count > 1 && request.period_us == 0 ? kMost : request.period_us;
  object->cq->moderate(request.count, period_us * kMicrosecond);
  return 0;
}

int destroy_cq(Call& call) {
  uroce_handle request;
  if (!call.read(request) || request.reserved != 0) return EINVAL;
  Session& session = call.session;
  CqObject* object = session.cqs.find(request.handle);
  if (object == nullptr) return ENOENT;
  if (object->users != 0) return call.in_use("CQ", object->users, "QPs, WQs or SRQs");
  call.state.on_all_workers(worker_commands::RemoveCq{object->id, object->cq.get()});
  call.events.remove_cq(object->id);
  EventRouter::forget(session, object->cookie);
  call.state.cq_ids().release(object->id.value);
  if (object->channel != nullptr) --object->channel->users;
  session.arena.free(object->ring);
  session.arena.free(object->client);
  session.cqs.erase(request.handle);
  return 0;
}

}  // namespace uroce::control::commands
