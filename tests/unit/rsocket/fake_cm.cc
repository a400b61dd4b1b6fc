#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <list>
#include <map>

#include "fake_verbs.h"

namespace uroce::fake {
namespace {

struct Id : rdma_cm_id {
  Id* peer = nullptr;
  int unacknowledged = 0;
  bool listening = false, connected = false;
};

struct Event : rdma_cm_event {
  Id* owner;  ///< its destruction waits for the acknowledgement
  std::vector<std::uint8_t> data;
};

struct EventChannel : rdma_event_channel {
  int pipe_end;
  std::deque<Event*> events;
};

std::condition_variable acknowledged;
std::list<Id*> ids;
std::uint16_t next_port = 40000;

std::uint16_t port_of(const sockaddr_storage& a) {
  // The port has the same offset for both families.
  return ntohs(reinterpret_cast<const sockaddr_in&>(a).sin_port);
}

void push(Id& id, rdma_cm_event_type type, int status, const void* data, std::uint8_t length,
          Id* request = nullptr) {
  auto* event = new Event;
  static_cast<rdma_cm_event&>(*event) = {};
  event->event = type;
  event->status = status;
  event->owner = &id;
  event->id = request != nullptr ? request : &id;
  event->listen_id = request != nullptr ? &id : nullptr;
  if (length > 0) {
    event->data.assign(static_cast<const std::uint8_t*>(data), static_cast<const std::uint8_t*>(data) + length);
    event->param.conn.private_data = event->data.data();
    event->param.conn.private_data_len = length;
  }
  auto* channel = static_cast<EventChannel*>(id.channel);
  channel->events.push_back(event);
  const char byte = 0;
  if (write(channel->pipe_end, &byte, 1) != 1) std::abort();
}

void disconnect(Id& id) {
  if (id.qp != nullptr) fail_qp(*static_cast<Qp*>(id.qp));
  if (!id.connected) return;
  id.connected = false;
  if (id.peer != nullptr && id.peer->connected) push(*id.peer, RDMA_CM_EVENT_DISCONNECTED, 0, nullptr, 0);
}

Id* make_id(rdma_event_channel* channel, void* context, rdma_port_space ps) {
  auto* id = new Id;
  static_cast<rdma_cm_id&>(*id) = {};
  id->channel = channel;
  id->context = context;
  id->ps = ps;
  ids.push_back(id);
  ++live();
  return id;
}

void bind_port(Id& id) {
  auto& in = id.route.addr.src_sin;
  if (in.sin_port == 0) in.sin_port = htons(next_port++);
}

}  // namespace
}  // namespace uroce::fake

using namespace uroce::fake;

extern "C" {

rdma_event_channel* rdma_create_event_channel() {
  int fds[2];
  if (pipe(fds) != 0) return nullptr;
  auto* channel = new EventChannel;
  channel->fd = fds[0];
  channel->pipe_end = fds[1];
  return channel;
}
void rdma_destroy_event_channel(rdma_event_channel* of) { delete static_cast<EventChannel*>(of); }

int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space ps) {
  const std::lock_guard lock(mutex());
  *id = make_id(channel, context, ps);
  return 0;
}

int rdma_destroy_id(rdma_cm_id* of) {
  std::unique_lock lock(mutex());
  auto* id = static_cast<Id*>(of);
  disconnect(*id);
  if (id->peer != nullptr) id->peer->peer = nullptr;
  id->listening = false;
  ids.remove(id);
  if (auto* channel = static_cast<EventChannel*>(id->channel)) {
    for (Event*& event : channel->events) {
      if (event == nullptr || event->owner != id) continue;
      delete event;
      event = nullptr;
    }
  }
  acknowledged.wait(lock, [&] { return id->unacknowledged == 0; });
  delete id;
  --live();
  return 0;
}

int rdma_bind_addr(rdma_cm_id* of, sockaddr* addr) {
  const std::lock_guard lock(mutex());
  auto& id = *static_cast<Id*>(of);
  sockaddr_storage wanted{};
  std::memcpy(&wanted, addr, addr->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
  const auto same = [&](const Id* other) {
    return other->ps == id.ps && port_of(wanted) != 0 && port_of(other->route.addr.src_storage) == port_of(wanted);
  };
  if (std::any_of(ids.begin(), ids.end(), same)) {
    errno = EADDRINUSE;
    return -1;
  }
  id.route.addr.src_storage = wanted;
  bind_port(id);
  id.verbs = context();
  id.port_num = 1;
  return 0;
}

int rdma_listen(rdma_cm_id* id, int) {
  const std::lock_guard lock(mutex());
  bind_port(*static_cast<Id*>(id));
  static_cast<Id*>(id)->listening = true;
  return 0;
}

int rdma_resolve_addr(rdma_cm_id* of, sockaddr*, sockaddr* to, int) {
  const std::lock_guard lock(mutex());
  auto& id = *static_cast<Id*>(of);
  id.route.addr.src_addr.sa_family = to->sa_family;
  std::memcpy(&id.route.addr.dst_storage, to, sizeof(sockaddr_in));
  id.route.addr.src_sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  bind_port(id);
  id.verbs = context();
  id.port_num = 1;
  push(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0, nullptr, 0);
  return 0;
}

int rdma_resolve_route(rdma_cm_id* id, int) {
  const std::lock_guard lock(mutex());
  push(*static_cast<Id*>(id), RDMA_CM_EVENT_ROUTE_RESOLVED, 0, nullptr, 0);
  return 0;
}

int rdma_create_qp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attr) {
  const std::lock_guard lock(mutex());
  id->qp = make_qp(pd, *attr);
  return 0;
}
void rdma_destroy_qp(rdma_cm_id* id) {
  const std::lock_guard lock(mutex());
  disconnect(*static_cast<Id*>(id));
  destroy_qp(id->qp);
  id->qp = nullptr;
}

int rdma_connect(rdma_cm_id* of, rdma_conn_param* param) {
  const std::lock_guard lock(mutex());
  auto& id = *static_cast<Id*>(of);
  const std::uint16_t port = port_of(id.route.addr.dst_storage);
  const auto at = std::find_if(ids.begin(), ids.end(), [&](const Id* other) {
    return other->listening && port_of(other->route.addr.src_storage) == port;
  });
  if (at == ids.end()) {
    push(id, RDMA_CM_EVENT_REJECTED, 8, nullptr, 0);
    return 0;
  }
  Id* request = make_id((*at)->channel, (*at)->context, id.ps);
  request->verbs = context();
  request->port_num = 1;
  request->route.addr.src_storage = id.route.addr.dst_storage;
  request->route.addr.dst_storage = id.route.addr.src_storage;
  request->peer = &id;
  id.peer = request;
  push(**at, RDMA_CM_EVENT_CONNECT_REQUEST, 0, param->private_data, param->private_data_len, request);
  return 0;
}

int rdma_accept(rdma_cm_id* of, rdma_conn_param* param) {
  const std::lock_guard lock(mutex());
  auto& id = *static_cast<Id*>(of);
  if (id.peer == nullptr) {
    errno = ECONNRESET;
    return -1;
  }
  link(*static_cast<Qp*>(id.qp), *static_cast<Qp*>(id.peer->qp));
  id.connected = id.peer->connected = true;
  push(id, RDMA_CM_EVENT_ESTABLISHED, 0, nullptr, 0);
  push(*id.peer, RDMA_CM_EVENT_ESTABLISHED, 0, param->private_data, param->private_data_len);
  return 0;
}

int rdma_reject(rdma_cm_id* of, const void*, std::uint8_t) {
  const std::lock_guard lock(mutex());
  auto& id = *static_cast<Id*>(of);
  if (id.peer != nullptr) push(*id.peer, RDMA_CM_EVENT_REJECTED, 28, nullptr, 0);
  return 0;
}

int rdma_disconnect(rdma_cm_id* id) {
  const std::lock_guard lock(mutex());
  disconnect(*static_cast<Id*>(id));
  return 0;
}

int rdma_get_cm_event(rdma_event_channel* of, rdma_cm_event** event) {
  auto* channel = static_cast<EventChannel*>(of);
  while (true) {
    char byte;
    if (read(channel->fd, &byte, 1) != 1) return -1;
    const std::lock_guard lock(mutex());
    Event* next = channel->events.front();
    channel->events.pop_front();
    if (next == nullptr) continue;  // its id was destroyed
    ++next->owner->unacknowledged;
    *event = next;
    return 0;
  }
}

int rdma_ack_cm_event(rdma_cm_event* of) {
  const std::lock_guard lock(mutex());
  auto* event = static_cast<Event*>(of);
  --event->owner->unacknowledged;
  acknowledged.notify_all();
  delete event;
  return 0;
}

int rdma_set_option(rdma_cm_id*, int, int, void*, size_t) { return 0; }

}  // extern "C"
