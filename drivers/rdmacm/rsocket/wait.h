// Waiting for the state of a socket.
#pragma once

#include <poll.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <vector>

#include "rsocket/socket.h"

namespace uroce::rdmacm {

inline std::uint64_t now_us() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

/// Waits until done(), which is called with the lock held. `socket` provides progress(), which handles completions;
/// arm(), which arms its completion channels; sleep_on(), which adds their descriptors; take_events(); closed();
/// and watchers_. Returns 0; -EAGAIN if it would block and `nonblock` is set; -EINTR after a signal; -EBADF if the
/// socket was closed.
template <class S, class Done>
int wait_until(S& socket, std::unique_lock<std::mutex>& lock, bool nonblock, const Done& done) {
  socket.progress();
  if (done()) return 0;
  if (nonblock) return -EAGAIN;
  for (const std::uint64_t end = now_us() + defaults().polling_us; now_us() < end;) {
    lock.unlock();
    lock.lock();
    socket.progress();
    if (done()) return 0;
  }
  const int waker = waker_fd();
  socket.watchers_.add(waker);
  int result = 0;
  std::vector<pollfd> fds;
  while (true) {
    socket.arm();
    socket.progress();
    if (done() || socket.closed() || result != 0) break;
    fds.assign(1, {waker, POLLIN, 0});
    socket.sleep_on(fds);
    lock.unlock();
    if (::poll(fds.data(), fds.size(), -1) < 0) result = -errno;
    drain_waker();
    lock.lock();
    socket.take_events();
    socket.progress();
    if (done() || socket.closed()) break;
  }
  socket.watchers_.remove(waker);
  if (socket.closed()) return -EBADF;
  return done() ? 0 : result;
}

}  // namespace uroce::rdmacm
