#include "drivers/packet/dpdk/waker.h"

#include <poll.h>
#include <rte_ethdev.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>

namespace uroce::dpdk {
namespace {

constexpr long kFirstNap = 50'000, kLastNap = 1'000'000;  // ns

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

void InterruptWaker::arm(bool) {
  armed_ = true;
  if (drains_) rte_eth_dev_rx_intr_enable(port_, queue_);
}

void InterruptWaker::disarm() {
  if (!armed_) return;
  armed_ = false;
  if (!drains_) return;
  rte_eth_dev_rx_intr_disable(port_, queue_);
  pollfd readable{.fd = fd_, .events = POLLIN, .revents = 0};
  std::uint64_t count;
  if (::poll(&readable, 1, 0) == 1) [[maybe_unused]]
    const ssize_t n = ::read(fd_, &count, sizeof(count));
}

}  // namespace uroce::dpdk
