// Completion queues and channels (ibv_create_cq(3), ibv_get_cq_event(3)).
#include <poll.h>

#include <memory>
#include <span>

#include "completion.h"
#include "events.h"
#include "export.h"
#include "objects.h"

namespace uroce::verbs {
namespace {

void to_wc(const uroce_cqe& in, ibv_wc& out) {
  out.wr_id = in.wr_id;
  out.status = static_cast<ibv_wc_status>(in.status);
  out.opcode = static_cast<ibv_wc_opcode>(in.opcode);
  out.vendor_err = in.vendor_err;
  out.byte_len = in.byte_len;
  out.imm_data = in.imm_data;
  out.qp_num = in.qpn;
  out.src_qp = in.src_qp;
  out.wc_flags = in.wc_flags;
  out.pkey_index = static_cast<std::uint16_t>(in.pkey_index);
  out.slid = 0;
  out.sl = in.sl;
  out.dlid_path_bits = 0;
}

// Counts an event that the program must acknowledge (ibv_ack_cq_events(3)). Called while the CQ can't be destroyed.
void deliver(Cq& cq) {
  pthread_mutex_lock(&cq.cq.mutex);
  ++cq.comp_delivered;
  pthread_mutex_unlock(&cq.cq.mutex);
}

// As the specification requires, the daemon generates events only for entries that are added after arming. Adapters
// also generate one for entries that were there before, and programs rely on that: perftest polls at most 16
// entries per event and then waits. So a thread in ibv_get_cq_event() is given a CQ that had entries when it was
// armed and still has some.
void note_waiting(Cq& cq) {
  auto& channel = *reinterpret_cast<Channel*>(cq.cq.channel);
  const std::lock_guard lock(channel.waiting_mutex);
  if (cq.waiting) return;
  try {
    channel.waiting.push_back(cq.cookie);
    cq.waiting = true;
  } catch (const std::bad_alloc&) {
    // Only the events that the specification guarantees are delivered then.
  }
}

bool some_wait(Channel& channel) {
  const std::lock_guard lock(channel.waiting_mutex);
  return !channel.waiting.empty();
}

Cq* next_waiting(Context& context, Channel& channel) {
  if (!some_wait(channel)) return nullptr;
  const std::lock_guard objects(context.objects_mutex);
  const std::lock_guard lock(channel.waiting_mutex);
  while (!channel.waiting.empty()) {
    const auto at = context.cqs.find(channel.waiting.back());
    if (at != context.cqs.end() && at->second->queue.armed_with_pending()) {
      pollfd events{channel.channel.fd, POLLIN, 0};
      if (poll(&events, 1, 0) != 0) return nullptr;  // an event of the daemon is waiting, and comes first
    }
    channel.waiting.pop_back();
    if (at == context.cqs.end()) continue;
    at->second->waiting = false;
    if (!at->second->queue.take_event()) continue;
    deliver(*at->second);
    return at->second;
  }
  return nullptr;
}

// When the daemon is gone, each armed CQ gets one event for its flushed work requests.
Cq* next_flushed(Context& context, ibv_comp_channel* channel) {
  const std::lock_guard lock(context.objects_mutex);
  for (const auto& [cookie, cq] : context.cqs) {
    if (cq->cq.channel != channel || cq->flush_delivered || !cq->queue.has_flushed()) continue;
    cq->flush_delivered = true;
    deliver(*cq);
    return cq;
  }
  return nullptr;
}

/// Of a completion event: whether its CQ was destroyed.
auto destroyed_cq(Context& context) {
  return [&context](std::uint64_t cookie) {
    const std::lock_guard lock(context.objects_mutex);
    return !context.cqs.contains(cookie);
  };
}

void discard_events(Context& context, ibv_comp_channel* channel) {
  if (channel == nullptr) return;
  reinterpret_cast<Channel*>(channel)->events.discard<std::uint64_t>(channel->fd, destroyed_cq(context));
}

}  // namespace

ibv_cq* create_cq(ibv_context* context, const uroce_create_cq_request& shape, void* cq_context,
                  ibv_comp_channel* channel) {
  Context& owner = *as_context(context);
  auto cq = std::make_unique<Cq>();
  prepare_events(cq->cq);
  uroce_create_cq_request request = shape;
  request.channel = channel != nullptr ? reinterpret_cast<Channel*>(channel)->handle : 0;
  {
    const std::lock_guard lock(owner.objects_mutex);
    request.cookie = cq->cookie = owner.next_cookie++;
    owner.cqs.emplace(cq->cookie, cq.get());
  }
  const int error = client::CompletionQueue::create(*owner.session, request, cq->queue);
  if (error != 0) {
    const std::lock_guard lock(owner.objects_mutex);
    owner.cqs.erase(cq->cookie);
    return null_with(error);
  }
  ibv_cq& made = cq->cq;
  made.context = context;
  made.channel = channel;
  made.cq_context = cq_context;
  made.handle = cq->queue.made().handle;
  made.cqe = static_cast<int>(cq->queue.made().entries);
  if (channel != nullptr) {
    pthread_mutex_lock(&context->mutex);
    ++channel->refcnt;
    pthread_mutex_unlock(&context->mutex);
  }
  return &cq.release()->cq;
}

int poll_cq(ibv_cq* cq, int count, ibv_wc* wc) {
  return as_cq(cq)->queue.poll(count, [&wc](const uroce_cqe& entry) { to_wc(entry, *wc++); });
}

int req_notify_cq(ibv_cq* cq, int solicited_only) {
  Cq& queue = *as_cq(cq);
  if (queue.queue.session().lost()) return lost_error(queue.queue.session());
  const bool had_entries = queue.queue.arm(solicited_only != 0);
  if (had_entries && cq->channel != nullptr) note_waiting(queue);
  return 0;
}

int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr) {
  const Verb verb("ibv_modify_cq");
  if (attr->attr_mask != IBV_CQ_ATTR_MODERATE)
    return failed(EINVAL, "attr_mask: IBV_CQ_ATTR_MODERATE is the only attribute");
  const uroce_modify_cq_request request{cq->handle, attr->moderate.cq_count, attr->moderate.cq_period, 0};
  return failed(session_of(cq->context).call(UROCE_CMD_MODIFY_CQ, std::as_bytes(std::span(&request, 1)), {}));
}

}  // namespace uroce::verbs

using namespace uroce;
using namespace uroce::verbs;

UROCE_EXPORT ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  const Verb verb("ibv_create_comp_channel");
  return guarded<ibv_comp_channel*>(nullptr, [&]() -> ibv_comp_channel* {
    auto channel = std::make_unique<Channel>();
    uroce_handle reply{};
    client::ReceivedFds fds;
    const int error = session_of(context).call(UROCE_CMD_CREATE_CHANNEL, {},
                                               std::as_writable_bytes(std::span(&reply, 1)), {}, &fds);
    if (error != 0) return null_with(error);
    channel->channel = {context, fds.take(0), 0};
    channel->handle = reply.handle;
    return &channel.release()->channel;
  });
}

UROCE_EXPORT int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  const Verb verb("ibv_destroy_comp_channel");
  ibv_context* const context = channel->context;
  pthread_mutex_lock(&context->mutex);
  const bool busy = channel->refcnt != 0;
  pthread_mutex_unlock(&context->mutex);
  if (busy) return failed(EBUSY, "CQs use the channel; destroy those first");
  auto* const destroyed = reinterpret_cast<Channel*>(channel);
  if (const int error = session_of(context).release(UROCE_CMD_DESTROY_CHANNEL, destroyed->handle); error != 0) {
    return failed(error);
  }
  client::sys::close(channel->fd);
  delete destroyed;
  return 0;
}

UROCE_EXPORT ibv_cq* create_cq_1_1(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                                   int comp_vector) {
  const Verb verb("ibv_create_cq");
  return guarded<ibv_cq*>(nullptr, [&]() -> ibv_cq* {
    if (cqe < 1 || comp_vector < 0 || comp_vector >= context->num_comp_vectors) {
      return null_with(EINVAL, "cqe must be 1 or more, and comp_vector less than the context's num_comp_vectors");
    }
    uroce_create_cq_request shape{};
    shape.entries = static_cast<std::uint32_t>(cqe);
    return create_cq(context, shape, cq_context, channel);
  });
}
UROCE_VERSIONS_1_0_AND_1_1(create_cq_1_1, ibv_create_cq);

UROCE_EXPORT int resize_cq(ibv_cq* cq, int cqe) {
  const Verb verb("ibv_resize_cq");
  if (cqe < 1) return failed(EINVAL, "cqe must be 1 or more");
  client::CompletionQueue& queue = as_cq(cq)->queue;
  if (queue.session().lost()) return failed(lost_error(queue.session()));
  return guarded_errno([&] {
    const int error = queue.resize(static_cast<std::uint32_t>(cqe));
    if (error == 0) cq->cqe = static_cast<int>(queue.made().entries);
    return failed(error);
  });
}
UROCE_VERSIONS_1_0_AND_1_1(resize_cq, ibv_resize_cq);

UROCE_EXPORT int destroy_cq(ibv_cq* cq) {
  const Verb verb("ibv_destroy_cq");
  Cq* const destroyed = as_cq(cq);
  Context& owner = *as_context(cq->context);
  if (const int error = destroyed->queue.destroy(); error != 0) return failed(error);
  {
    const std::lock_guard lock(owner.objects_mutex);
    owner.cqs.erase(destroyed->cookie);
  }
  // No more events arrive. Those that were delivered must be acknowledged first (ibv_ack_cq_events(3)).
  if (owner.session->connection_state() != client::ConnectionState::kForked) {
    discard_events(owner, cq->channel);
    discard_async_events(owner);
    pthread_mutex_lock(&cq->mutex);
    while (cq->comp_events_completed != destroyed->comp_delivered ||
           cq->async_events_completed != destroyed->async_delivered) {
      pthread_cond_wait(&cq->cond, &cq->mutex);
    }
    pthread_mutex_unlock(&cq->mutex);
  }
  if (cq->channel != nullptr) {
    pthread_mutex_lock(&cq->context->mutex);
    --cq->channel->refcnt;
    pthread_mutex_unlock(&cq->context->mutex);
  }
  if (destroyed->domain != nullptr) destroyed->domain->users.fetch_sub(1);
  pthread_cond_destroy(&cq->cond);
  pthread_mutex_destroy(&cq->mutex);
  delete destroyed;
  return 0;
}
UROCE_VERSIONS_1_0_AND_1_1(destroy_cq, ibv_destroy_cq);

UROCE_EXPORT int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  Context& owner = *as_context(channel->context);
  for (;;) {
    if (owner.session->connection_state() == client::ConnectionState::kForked) {
      errno = ENODEV;
      return -1;
    }
    if (Cq* const waiting = next_waiting(owner, *reinterpret_cast<Channel*>(channel)); waiting != nullptr) {
      *cq = &waiting->cq;
      *cq_context = waiting->cq.cq_context;
      return 0;
    }
    std::uint64_t cookie;
    // Interruptible and a cancellation point, as callers of this function expect.
    const ssize_t got = reinterpret_cast<Channel*>(channel)->events.read(channel->fd, cookie, destroyed_cq(owner));
    if (got < 0) return -1;
    Cq* found = nullptr;
    if (got == sizeof(cookie)) {
      const std::lock_guard lock(owner.objects_mutex);
      const auto at = owner.cqs.find(cookie);
      if (at == owner.cqs.end()) continue;  // the CQ was destroyed
      found = at->second;
      deliver(*found);
    } else {
      owner.session->set_dead();  // end of file: the daemon held the other end
      found = next_flushed(owner, channel);
      if (found == nullptr) {
        errno = EIO;
        return -1;
      }
    }
    *cq = &found->cq;
    *cq_context = found->cq.cq_context;
    return 0;
  }
}
UROCE_VERSIONS_1_0_AND_1_1(get_cq_event, ibv_get_cq_event);

UROCE_EXPORT void ack_cq_events(ibv_cq* cq, unsigned count) {
  pthread_mutex_lock(&cq->mutex);
  cq->comp_events_completed += count;
  pthread_cond_signal(&cq->cond);
  pthread_mutex_unlock(&cq->mutex);
}
UROCE_VERSIONS_1_0_AND_1_1(ack_cq_events, ibv_ack_cq_events);
