// Event channels (rdma_create_event_channel(3)): for each daemon that the channel is used with, the reading end of
// a socket pair that the daemon has made. The epoll set contains the daemons' sockets, too, so that a thread
// waiting for an event notices that a daemon is gone.
//
// Linux keeps the events of a channel in a list, from which it takes those of one id when that is destroyed or
// migrated (drivers/infiniband/core/ucma.c). From the middle of a socket nothing can be taken: all records go to
// Channel::waiting first. While that holds events, the set watches `ready`, which is always readable.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <functional>

#include "client/system.h"
#include "export.h"
#include "objects.h"

namespace uroce::rdmacm {
namespace {

int watch(Channel& channel, int operation, int fd, std::uint32_t events) {
  epoll_event wanted{};
  wanted.events = events;
  return ::epoll_ctl(channel.channel.fd, operation, fd, &wanted);
}

/// errno; EAGAIN: no record is waiting.
int receive(Channel& channel, Channel::Source& source, uroce_cm_event& out) {
  if (source.ended) return EAGAIN;
  iovec part{&out, sizeof(out)};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  const ssize_t n = client::sys::receive_message(source.fd, &message, MSG_DONTWAIT);
  if (n < 0) return errno == EWOULDBLOCK ? EAGAIN : errno;
  if (n == sizeof(out)) return 0;
  if (n != 0) return EIO;
  // The daemon has closed the session. Its socket, which the set holds, reports that to look_for_dead_devices().
  source.ended = true;
  watch(channel, EPOLL_CTL_DEL, source.fd, 0);
  return EAGAIN;
}

/// As above, from the next socket that has a record: no daemon's events wait for those of another.
int receive(Channel& channel, uroce_cm_event& out) {
  const std::lock_guard lock(channel.mutex);
  int error = EAGAIN;
  for (std::size_t tries = channel.sources.size(); tries != 0 && error == EAGAIN; --tries) {
    channel.turn = (channel.turn + 1) % channel.sources.size();
    error = receive(channel, channel.sources[channel.turn], out);
  }
  return error;
}

/// Makes the descriptor readable if events wait. Call after each change of Channel::waiting.
void show_waiting(Channel& channel) {
  watch(channel, EPOLL_CTL_MOD, channel.ready, channel.waiting.empty() ? 0 : std::uint32_t{EPOLLIN});
}

void receive_all(Channel& channel) {
  do {
    channel.waiting.emplace_back();
  } while (receive(channel, channel.waiting.back()) == 0);
  channel.waiting.pop_back();
}

/// Whether the id with these bindings owns the event: of a request, the listener does.
bool owns(std::span<const Binding> bindings, const uroce_cm_event& event) {
  const std::uint32_t handle = event.type == RDMA_CM_EVENT_CONNECT_REQUEST ? event.listener : event.handle;
  return std::ranges::any_of(bindings, [&](const Binding& binding) {
    return binding.handle == handle && binding.device->index == event.device;
  });
}

/// The events of an id, in their order. Those of a connection request that waits go with it: the peer may have
/// given up already.
class EventsOf {
 public:
  EventsOf(std::span<const Binding> bindings, std::uint32_t serial) : bindings_(bindings), serial_(serial) {}
  bool operator()(const uroce_cm_event& event) {
    if (event.device == kLibrary) return event.handle == serial_;
    const std::pair key(event.device, event.handle);
    if (std::ranges::find(requests_, key) != requests_.end()) return true;
    if (!owns(bindings_, event)) return false;
    if (event.type == RDMA_CM_EVENT_CONNECT_REQUEST) requests_.push_back(key);
    return true;
  }
  /// Devices and handles.
  const std::vector<std::pair<std::uint32_t, std::uint32_t>>& requests() const { return requests_; }

 private:
  std::span<const Binding> bindings_;
  std::uint32_t serial_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> requests_{};
};

bool forked(std::span<const Binding> bindings) {
  return std::ranges::any_of(bindings, [](const Binding& binding) {
    return binding.device->session->connection_state() == client::ConnectionState::kForked;
  });
}

}  // namespace

int handle_of(Channel& channel, Device& device, std::uint32_t& out) {
  const std::lock_guard lock(channel.mutex);
  if (const auto it = channel.handles.find(&device); it != channel.handles.end()) {
    out = it->second;
    return 0;
  }
  // An answer whose descriptor does not fit ends the session.
  const int free_number = ::fcntl(channel.channel.fd, F_DUPFD_CLOEXEC, 0);
  if (free_number < 0) return errno;
  client::sys::close(free_number);
  const uroce_cm_channel_request request{device.index, 0};
  uroce_handle reply{};
  client::ReceivedFds fds;
  if (const int error = device.call(UROCE_CMD_CM_OPEN_CHANNEL, request, reply, &fds)) return error;
  const int fd = fds.take(0);
  channel.sources.push_back({fd, &device});
  if (watch(channel, EPOLL_CTL_ADD, fd, EPOLLIN) != 0) {
    const int error = errno;
    device.session->release(UROCE_CMD_CM_CLOSE_CHANNEL, reply.handle);
    channel.sources.pop_back();
    client::sys::close(fd);
    return error;
  }
  channel.handles.emplace(&device, reply.handle);
  watch(channel, EPOLL_CTL_ADD, device.session->socket(), EPOLLRDHUP);
  out = reply.handle;
  return 0;
}

int take_event(Channel& channel, uroce_cm_event& out) {
  if (channel.waiting.empty()) return receive(channel, out);
  out = channel.waiting.front();
  channel.waiting.pop_front();
  if (channel.waiting.empty()) show_waiting(channel);
  return 0;
}

void move_events(const CmId& id, Channel& from, Channel& to) {
  receive_all(from);
  EventsOf of_id(id.bindings, id.serial);
  std::deque<uroce_cm_event> moved, stay;
  for (const uroce_cm_event& event : from.waiting) (of_id(event) ? moved : stay).push_back(event);
  from.waiting = std::move(stay);
  to.waiting.insert(to.waiting.end(), moved.begin(), moved.end());
  show_waiting(from);
  show_waiting(to);
}

void discard_events(Channel& channel, std::span<const Binding> bindings, std::uint32_t serial) {
  // A forked child shares the socket with its parent, whose events these are.
  if (forked(bindings)) return;
  Registry& registry = Registry::instance();
  EventsOf of_id(bindings, serial);
  const auto discard = [&] {
    const std::lock_guard lock(registry.mutex);
    if (!bindings.empty()) receive_all(channel);
    if (std::erase_if(channel.waiting, std::ref(of_id)) != 0 || !bindings.empty()) show_waiting(channel);
  };
  discard();
  if (of_id.requests().empty()) return;
  // The daemon rejects a request whose id is destroyed. Until then it may have reported more of it.
  for (const auto& [index, handle] : of_id.requests()) {
    Device* device;
    {
      const std::lock_guard lock(registry.mutex);
      device = registry.device(index);
    }
    device->session->release(UROCE_CMD_CM_DESTROY_ID, handle);
  }
  discard();
}

void discard_join(Channel& channel, const Binding& binding, std::uint64_t cookie) {
  const std::span bindings(&binding, 1);
  if (forked(bindings)) return;
  const std::lock_guard lock(Registry::instance().mutex);
  receive_all(channel);
  std::erase_if(channel.waiting, [&](const uroce_cm_event& event) {
    const bool of_group = event.type == RDMA_CM_EVENT_MULTICAST_JOIN || event.type == RDMA_CM_EVENT_MULTICAST_ERROR;
    return of_group && event.context == cookie && owns(bindings, event);
  });
  show_waiting(channel);
}

void add_event(Channel& channel, const uroce_cm_event& event) {
  channel.waiting.push_back(event);
  show_waiting(channel);
}

void add_own_event(const CmId& id, LaterEvent type, int status, std::uint64_t argument) {
  uroce_cm_event event{};
  event.type = type;
  event.device = kLibrary;
  event.handle = id.serial;
  event.status = status;
  event.context = argument;
  add_event(as_channel(id.id.channel), event);
}

int forward_event(Channel& to, Device& device, const uroce_cm_event& event) {
  uroce_cm_post_request request{};
  request.event = event;
  if (const int error = handle_of(to, device, request.channel)) return error;
  return device.call(UROCE_CMD_CM_POST, request);
}

}  // namespace uroce::rdmacm

using namespace uroce::rdmacm;

UROCE_EXPORT rdma_event_channel* rdma_create_event_channel() {
  const Verb verb("rdma_create_event_channel");
  return guarded<rdma_event_channel*>(nullptr, []() -> rdma_event_channel* {
    if (Registry::instance().devices().empty()) {
      errno = Registry::instance().why_none();
      return nullptr;
    }
    auto* const made = new Channel{};
    made->channel.fd = ::epoll_create1(EPOLL_CLOEXEC);
    made->ready = ::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    if (made->ready < 0 || watch(*made, EPOLL_CTL_ADD, made->ready, 0) != 0) {
      const int error = errno;
      rdma_destroy_event_channel(&made->channel);
      errno = error;
      return nullptr;
    }
    return &made->channel;
  });
}

UROCE_EXPORT void rdma_destroy_event_channel(rdma_event_channel* channel) {
  if (channel == nullptr) return;
  Channel* const closed = &as_channel(channel);
  // A thread that still waits for an event (rping's) would be woken by the end of a socket. A forked child shares
  // the set with its parent, which goes on waiting.
  for (const Channel::Source& source : closed->sources) {
    if (source.device->session->connection_state() == uroce::client::ConnectionState::kForked) continue;
    watch(*closed, EPOLL_CTL_DEL, source.fd, 0);
  }
  for (const auto& [device, handle] : closed->handles) device->session->release(UROCE_CMD_CM_CLOSE_CHANNEL, handle);
  for (const int fd : {closed->channel.fd, closed->ready}) uroce::client::sys::close(fd);
  for (const Channel::Source& source : closed->sources) uroce::client::sys::close(source.fd);
  delete closed;
}
