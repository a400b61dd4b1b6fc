// Event channels (rdma_create_event_channel(3)): a socket pair whose sending end is passed to every daemon. The
// epoll set contains the daemons' sockets, too, so that a thread waiting for an event notices that a daemon is
// gone.
#include <sys/epoll.h>
#include <sys/socket.h>

#include "client/system.h"
#include "export.h"
#include "objects.h"

namespace uroce::rdmacm {

int handle_of(Channel& channel, Device& device, std::uint32_t& out) {
  const std::lock_guard lock(channel.mutex);
  if (const auto it = channel.handles.find(&device); it != channel.handles.end()) {
    out = it->second;
    return 0;
  }
  const uroce_cm_channel_request request{device.index, 0};
  uroce_handle reply{};
  const int fds[1] = {channel.sender};
  const int error = device.session->call(UROCE_CMD_CM_OPEN_CHANNEL, std::as_bytes(std::span(&request, 1)),
                                         std::as_writable_bytes(std::span(&reply, 1)), fds);
  if (error != 0) return error;
  channel.handles.emplace(&device, reply.handle);
  epoll_event gone{};
  gone.events = EPOLLRDHUP;
  ::epoll_ctl(channel.channel.fd, EPOLL_CTL_ADD, device.session->socket(), &gone);
  out = reply.handle;
  return 0;
}

bool exchange_for_moved(Channel& channel, uroce_cm_event& record) {
  const bool placeholder = record.type == kMovedEvent;
  if (channel.moved.empty()) return !placeholder;
  if (!placeholder) channel.moved.push_back(record);
  record = channel.moved.front();
  channel.moved.pop_front();
  return true;
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
    int pair[2] = {-1, -1};
    const bool paired = ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0;
    made->receiver = pair[0];
    made->sender = pair[1];
    epoll_event readable{};
    readable.events = EPOLLIN;
    if (!paired || ::epoll_ctl(made->channel.fd, EPOLL_CTL_ADD, made->receiver, &readable) != 0) {
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
  for (const auto& [device, handle] : closed->handles) device->session->release(UROCE_CMD_CM_CLOSE_CHANNEL, handle);
  for (const int fd : {closed->channel.fd, closed->receiver, closed->sender}) uroce::client::sys::close(fd);
  delete closed;
}
