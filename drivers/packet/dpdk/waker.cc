#include "drivers/packet/dpdk/waker.h"

#include <poll.h>
#include <rte_ethdev.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

namespace uroce::dpdk {
namespace {

constexpr long kFirstNap = 50'000, kLastNap = 1'000'000;  // ns

bool is_readable(int fd) {
  pollfd readable{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&readable, 1, 0) == 1;
}

}  // namespace

TimerWaker::TimerWaker() : fd_(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)), nap_ns_(kFirstNap) {}

TimerWaker::~TimerWaker() {
  if (fd_ >= 0) ::close(fd_);
}

void TimerWaker::arm(bool quiet) {
  armed_ = true;
  if (!quiet) nap_ns_ = kFirstNap;
  itimerspec setting{};
  setting.it_value.tv_nsec = nap_ns_;
  ::timerfd_settime(fd_, 0, &setting, nullptr);
  nap_ns_ = std::min(nap_ns_ + nap_ns_ / 4, kLastNap);
}

void TimerWaker::disarm() {
  if (!armed_) return;
  armed_ = false;
  const itimerspec off{};
  ::timerfd_settime(fd_, 0, &off, nullptr);  // forgets an expiry that was not read, too
}

InterruptWaker::InterruptWaker(std::uint16_t port, std::uint16_t queue, int fd)
    : port_(port), queue_(queue), fd_(fd), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  for (const int each : {fd_, nap_.fd()}) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = each;
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, each, &event);
  }
}

InterruptWaker::~InterruptWaker() {
  if (epoll_ >= 0) ::close(epoll_);
}

void InterruptWaker::arm(bool quiet) {
  armed_ = true;
  rte_eth_dev_rx_intr_enable(port_, queue_);
  if (seen_ < kTrusted) nap_.arm(quiet);
}

void InterruptWaker::disarm() {
  if (!armed_) return;
  armed_ = false;
  nap_.disarm();
  // Asked before the driver is: that of mlx5 takes the event itself.
  if (is_readable(fd_) && seen_ < kTrusted) ++seen_;
  rte_eth_dev_rx_intr_disable(port_, queue_);
  std::uint64_t count;
  if (is_readable(fd_)) [[maybe_unused]]
    const ssize_t n = ::read(fd_, &count, sizeof(count));
}

SocketsWaker::SocketsWaker(std::span<const int> sockets) : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  for (const int socket : sockets) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = socket;
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, socket, &event);
  }
}

SocketsWaker::~SocketsWaker() {
  if (epoll_ >= 0) ::close(epoll_);
}

void SocketsWaker::disarm() {
  if (!armed_) return;
  armed_ = false;
  epoll_event events[4];
  const int n = ::epoll_wait(epoll_, events, std::size(events), 0);
  for (int i = 0; i < n; ++i) {
    if ((events[i].events & (EPOLLERR | EPOLLHUP)) == 0) continue;
    int error = 0;
    socklen_t length = sizeof error;
    const int socket = events[i].data.fd;
    const bool read = ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error != 0;
    if (!read) ::epoll_ctl(epoll_, EPOLL_CTL_DEL, socket, nullptr);  // it stays in error
  }
}

}  // namespace uroce::dpdk
