#include "rsocket/service.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <new>
#include <thread>

#include "rsocket/datagram.h"
#include "rsocket/stream.h"

namespace uroce::rdmacm {
namespace {

std::mutex instance_mutex;
std::atomic<Service*> instance{nullptr};

// The thread of the parent's service does not exist in the child, and the channel belongs to the parent.
void forget_after_fork() { instance = nullptr; }

}  // namespace

Service* Service::get() {
  if (Service* existing = instance) return existing;
  const std::lock_guard lock(instance_mutex);
  if (instance != nullptr) return instance;
  auto* made = new (std::nothrow) Service;
  if (made == nullptr || !made->start()) {
    delete made;
    return nullptr;
  }
  static const int registered = pthread_atfork(nullptr, nullptr, forget_after_fork);
  static_cast<void>(registered);
  instance = made;
  return made;
}

bool Service::start() {
  channel_ = rdma_create_event_channel();
  if (channel_ == nullptr) return false;
  wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  const bool ready = wake_fd_ >= 0 && fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK) == 0;
  // Signals are to be handled by the application's threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = false;
  if (ready) {
    try {
      std::thread([this] { run(); }).detach();
      started = true;
    } catch (const std::system_error&) {
      errno = EAGAIN;
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (started) return true;
  const int error = errno;
  if (wake_fd_ >= 0) ::close(wake_fd_);
  rdma_destroy_event_channel(channel_);
  errno = error;
  return false;
}

void Service::run() {
  bool channel_lives = true;
  while (true) {
    const int timeout = send_keepalives();
    std::vector<pollfd> fds{{wake_fd_, POLLIN, 0}, {channel_lives ? channel_->fd : -1, POLLIN, 0}};
    std::vector<Udp> udp;
    {
      const std::lock_guard lock(mutex_);
      udp = udp_;
    }
    for (const Udp& u : udp) fds.push_back({u.fd, POLLIN, 0});
    ::poll(fds.data(), fds.size(), timeout);
    if (fds[0].revents != 0) {
      eventfd_t value;
      eventfd_read(wake_fd_, &value);
    }
    if (fds[1].revents != 0) channel_lives = handle_events();
    for (std::size_t i = 0; i < udp.size(); ++i) {
      if (fds[i + 2].revents == 0) continue;
      const std::lock_guard calling(udp_call_mutex_);
      {
        const std::lock_guard lock(mutex_);
        const auto same = [&](const Udp& u) { return u.resolver == udp[i].resolver; };
        if (std::none_of(udp_.begin(), udp_.end(), same)) continue;
      }
      udp[i].resolver->receive();
    }
  }
}

// False: the channel has failed.
bool Service::handle_events() {
  while (true) {
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(channel_, &event) != 0) return errno == EAGAIN || errno == EINTR;
    std::vector<std::shared_ptr<Stream>> failed;
    rdma_cm_id* unwanted = nullptr;
    {
      const std::lock_guard lock(events_mutex_);
      const bool request = event->event == RDMA_CM_EVENT_CONNECT_REQUEST;
      // A new id inherits the context of its listener, which may be gone.
      if (request) event->id->context = nullptr;
      auto* stream = static_cast<Stream*>(request ? event->listen_id->context : event->id->context);
      if (stream != nullptr) {
        stream->on_event(*event, failed);
      } else if (request) {
        rdma_reject(event->id, nullptr, 0);
      }
      if (request && event->id->context == nullptr) unwanted = event->id;
    }
    rdma_ack_cm_event(event);
    if (unwanted != nullptr) rdma_destroy_id(unwanted);
    for (const auto& stream : failed) stream->close();
  }
}

// Returns the time until the next keepalive as the timeout of poll(2).
int Service::send_keepalives() {
  std::vector<std::shared_ptr<Stream>> due;
  int timeout = -1;
  {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    std::erase_if(keepalives_, [](const Keepalive& k) { return k.stream.expired(); });
    for (Keepalive& k : keepalives_) {
      if (k.next <= now) {
        k.next = now + k.interval;
        if (auto stream = k.stream.lock()) due.push_back(std::move(stream));
      }
      const auto wait = std::chrono::ceil<std::chrono::milliseconds>(k.next - now).count();
      const int bounded = static_cast<int>(std::min<std::int64_t>(wait, 1 << 30));
      timeout = timeout < 0 ? bounded : std::min(timeout, bounded);
    }
  }
  for (const auto& stream : due) stream->send_keepalive();
  return timeout;
}

void Service::wake() { eventfd_write(wake_fd_, 1); }

void Service::forget(rdma_cm_id* id) {
  const std::lock_guard lock(events_mutex_);
  id->context = nullptr;
}

void Service::keep_alive(const std::shared_ptr<Stream>& stream, unsigned seconds) {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(keepalives_, [&](const Keepalive& k) { return k.stream.lock() == stream; });
    const std::chrono::seconds interval(seconds);
    if (seconds > 0) keepalives_.push_back({stream, interval, Clock::now() + interval});
  }
  wake();
}

void Service::add(int fd, std::shared_ptr<DatagramResolver> resolver) {
  {
    const std::lock_guard lock(mutex_);
    udp_.push_back({fd, std::move(resolver)});
  }
  wake();
}

void Service::remove(int fd) {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(udp_, [&](const Udp& u) { return u.fd == fd; });
  }
  wake();
  // A call in progress finishes first.
  const std::lock_guard calling(udp_call_mutex_);
}

}  // namespace uroce::rdmacm
