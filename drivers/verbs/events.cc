// Asynchronous events (ibv_get_async_event(3)). They arrive through a socket, one in a message. End of file means
// that the daemon is gone, and is reported as the last event.
#include "events.h"

#include "export.h"
#include "objects.h"

namespace uroce::verbs {
namespace {

enum class Element { kPort, kDevice, kCq, kQp, kSrq, kWq, kOther };

Element element_of(std::uint32_t type) {
  switch (type) {
    case IBV_EVENT_CQ_ERR: return Element::kCq;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED: return Element::kQp;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED: return Element::kSrq;
    case IBV_EVENT_WQ_FATAL: return Element::kWq;
    case IBV_EVENT_DEVICE_FATAL: return Element::kDevice;
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_GID_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER: return Element::kPort;
    default: return Element::kOther;
  }
}

// False: the object was destroyed.
template <class Object, class Public>
bool deliver(const std::unordered_map<std::uint64_t, Object*>& all, std::uint64_t cookie, Public Object::*part,
             Public*& out) {
  const auto at = all.find(cookie);
  if (at == all.end()) return false;
  out = &(at->second->*part);
  pthread_mutex_lock(&out->mutex);
  ++at->second->async_delivered;
  pthread_mutex_unlock(&out->mutex);
  return true;
}

// False: the object was destroyed, or this library makes no objects of that type.
bool translate(Context& owner, const uroce_async_event& in, ibv_async_event& out) {
  const std::lock_guard lock(owner.objects_mutex);
  out.event_type = static_cast<ibv_event_type>(in.type);
  switch (element_of(in.type)) {
    case Element::kDevice:
      if (owner.fatal_delivered) return false;
      owner.fatal_delivered = true;
      return true;
    case Element::kPort: out.element.port_num = static_cast<int>(in.object); return true;
    case Element::kCq: return deliver(owner.cqs, in.cookie, &Cq::cq, out.element.cq);
    case Element::kQp:
      if (deliver(owner.qps, in.cookie, &Qp::qp, out.element.qp)) return true;
      // To the daemon a work queue is a QP. The only event of a work queue is a fatal error.
      out.event_type = IBV_EVENT_WQ_FATAL;
      [[fallthrough]];
    case Element::kWq: return deliver(owner.wqs, in.cookie, &Wq::wq, out.element.wq);
    case Element::kSrq: return deliver(owner.srqs, in.cookie, &Srq::srq, out.element.srq);
    default: return false;
  }
}

/// Whether no program is to receive the event, because its object was destroyed.
bool is_stale(Context& owner, const uroce_async_event& event) {
  const std::lock_guard lock(owner.objects_mutex);
  switch (element_of(event.type)) {
    case Element::kDevice:
    case Element::kPort: return false;
    case Element::kCq: return !owner.cqs.contains(event.cookie);
    case Element::kQp:
    case Element::kWq: return !owner.qps.contains(event.cookie) && !owner.wqs.contains(event.cookie);
    case Element::kSrq: return !owner.srqs.contains(event.cookie);
    default: return true;
  }
}

auto stale_in(Context& owner) {
  return [&owner](const uroce_async_event& event) { return is_stale(owner, event); };
}

}  // namespace

void discard_async_events(Context& owner) {
  owner.async_events.discard<uroce_async_event>(owner.base.context.async_fd, stale_in(owner));
}

}  // namespace uroce::verbs

using namespace uroce;
using namespace uroce::verbs;

UROCE_EXPORT int get_async_event(ibv_context* context, ibv_async_event* event) {
  Context& owner = *as_context(context);
  for (;;) {
    if (owner.session->connection_state() == client::ConnectionState::kForked) {
      errno = ENODEV;
      return -1;
    }
    uroce_async_event in{};
    // Interruptible and a cancellation point, as callers of this function expect.
    const ssize_t got = owner.async_events.read(context->async_fd, in, stale_in(owner));
    if (got < 0) return -1;
    if (got != sizeof(in)) in = {IBV_EVENT_DEVICE_FATAL, 0, 0};
    if (in.type == IBV_EVENT_DEVICE_FATAL) owner.session->set_dead();
    if (translate(owner, in, *event)) return 0;
    if (got != sizeof(in)) {
      errno = EIO;
      return -1;
    }
  }
}
UROCE_VERSIONS_1_0_AND_1_1(get_async_event, ibv_get_async_event);

UROCE_EXPORT void ack_async_event(ibv_async_event* event) {
  pthread_mutex_t* mutex;
  pthread_cond_t* changed;
  std::uint32_t* completed;
  switch (element_of(event->event_type)) {
    case Element::kCq:
      mutex = &event->element.cq->mutex;
      changed = &event->element.cq->cond;
      completed = &event->element.cq->async_events_completed;
      break;
    case Element::kQp:
      mutex = &event->element.qp->mutex;
      changed = &event->element.qp->cond;
      completed = &event->element.qp->events_completed;
      break;
    case Element::kSrq:
      mutex = &event->element.srq->mutex;
      changed = &event->element.srq->cond;
      completed = &event->element.srq->events_completed;
      break;
    case Element::kWq:
      mutex = &event->element.wq->mutex;
      changed = &event->element.wq->cond;
      completed = &event->element.wq->events_completed;
      break;
    default: return;
  }
  pthread_mutex_lock(mutex);
  ++*completed;
  pthread_cond_signal(changed);
  pthread_mutex_unlock(mutex);
}
UROCE_VERSIONS_1_0_AND_1_1(ack_async_event, ibv_ack_async_event);
