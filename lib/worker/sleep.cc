#include "worker/sleep.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <ctime>
#include <iterator>

namespace uroce::worker {
namespace {

void add(int epoll, int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

}  // namespace

WorkerSleep::WorkerSleep()
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)), wake_fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  watch(wake_fd_.get());
}

void WorkerSleep::join(const WorkerSleep& other) {
  epoll_.reset(::fcntl(other.epoll_.get(), F_DUPFD_CLOEXEC, 0));
  watch(wake_fd_.get());
}

void WorkerSleep::wake() {
  if (sleeping_.load(std::memory_order_seq_cst)) ::eventfd_write(wake_fd_.get(), 1);
}

void WorkerSleep::watch_device(int wake_fd) {
  if (wake_fd >= 0) add(epoll_.get(), wake_fd, EPOLLIN);
}

void WorkerSleep::watch(int eventfd) { add(epoll_.get(), eventfd, EPOLLIN | EPOLLET); }

void WorkerSleep::unwatch(int eventfd) { ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, eventfd, nullptr); }

void WorkerSleep::announce(SessionPorts& sessions) {
  sleeping_.store(true, std::memory_order_seq_cst);
  if (++number_ == UROCE_STAMP_DOORBELLS) number_ = 1;
  sessions.publish_sleep(number_);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

/// A descriptor in error ends each wait at once. A socket whose interface went down is in error until that is read;
/// a tun device after `ip link delete` stays so.
void WorkerSleep::end_error(int fd) {
  int error = 0;
  socklen_t length = sizeof error;
  const bool read = ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error != 0;
  if (!read) unwatch(fd);
}

void WorkerSleep::wait(Nanos limit) {
  epoll_event events[16];
  timespec timeout{};
  timeout.tv_sec = static_cast<time_t>(std::min(limit, 3600 * kSecond) / kSecond);
  timeout.tv_nsec = static_cast<long>(limit % kSecond);
  const int n =
      ::epoll_pwait2(epoll_.get(), events, std::size(events), limit == kNever ? nullptr : &timeout, nullptr);
  for (int i = 0; i < n; ++i) {
    if ((events[i].events & (EPOLLERR | EPOLLHUP)) != 0) end_error(events[i].data.fd);
  }
}

void WorkerSleep::end(SessionPorts& sessions) {
  sessions.publish_sleep(0);
  sleeping_.store(false, std::memory_order_seq_cst);
}

}  // namespace uroce::worker
