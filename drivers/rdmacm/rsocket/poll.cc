// rpoll() and rselect(): poll(2) and select(2) for rsockets and ordinary descriptors.
#include <rdma/rsocket.h>

#include <cerrno>
#include <memory>
#include <new>
#include <vector>

#include "export.h"
#include "rsocket/socket.h"
#include "rsocket/stream.h"

namespace uroce::rdmacm {
namespace {

struct Entry {
  std::shared_ptr<Socket> socket;  ///< null: an ordinary descriptor
  std::size_t from = 0, to = 0;    ///< its range in sleep_on_
};

/// The state of one rpoll() call.
class Poll {
 public:
  Poll(pollfd* fds, nfds_t count) : fds_(fds), entries_(count) {
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      entries_[i].socket = fds_[i].fd >= 0 ? find_socket(fds_[i].fd) : nullptr;
      only_plain_ = only_plain_ && entries_[i].socket == nullptr;
    }
  }
  ~Poll() { unwatch(); }

  int run(int timeout_ms) {
    if (only_plain_) return plain(timeout_ms);
    const std::uint64_t start = now_us();
    int found = look();
    while (found == 0 && timeout_ms != 0 && now_us() - start < defaults().polling_us) found = look();
    if (found != 0 || timeout_ms == 0) return found;
    while (true) {
      found = watch();
      if (found != 0) return found;
      int left = -1;
      if (timeout_ms > 0) {
        const auto passed = static_cast<std::int64_t>((now_us() - start) / 1000);
        if (passed >= timeout_ms) return 0;
        left = static_cast<int>(timeout_ms - passed);
      }
      const int woken = ::poll(sleep_on_.data(), sleep_on_.size(), left);
      const int error = errno;
      drain_waker();
      unwatch();
      if (woken < 0) {
        errno = error;
        return -1;
      }
      found = look();
      if (found != 0) return found;
    }
  }

 private:
  int plain(int timeout_ms) { return ::poll(fds_, entries_.size(), timeout_ms); }

  // Fills revents. Returns the number of entries with events.
  int look() {
    int found = 0;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      pollfd& fd = fds_[i];
      fd.revents = 0;
      if (entries_[i].socket != nullptr) {
        fd.revents = entries_[i].socket->ready(fd.events);
      } else if (fd.fd >= 0) {
        ::poll(&fd, 1, 0);
      }
      found += fd.revents != 0;
    }
    return found;
  }

  // look(), and prepares a sleep.
  int watch() {
    int found = 0;
    sleep_on_.assign(1, {waker_fd(), POLLIN, 0});
    watching_ = true;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      pollfd& fd = fds_[i];
      if (entries_[i].socket != nullptr) {
        fd.revents = entries_[i].socket->watch(fd.events, waker_fd(), sleep_on_);
        found += fd.revents != 0;
      } else if (fd.fd >= 0) {
        fd.revents = 0;
        sleep_on_.push_back({fd.fd, fd.events, 0});
      }
    }
    return found;
  }

  void unwatch() {
    if (!watching_) return;
    watching_ = false;
    for (const Entry& e : entries_) {
      if (e.socket != nullptr) e.socket->unwatch(waker_fd());
    }
  }

  pollfd* fds_;
  std::vector<Entry> entries_;
  std::vector<pollfd> sleep_on_;
  bool only_plain_ = true, watching_ = false;
};

int poll_guarded(pollfd* fds, nfds_t count, int timeout) {
  try {
    return Poll(fds, count).run(timeout);
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return -1;
  }
}

bool is_set(const fd_set* set, int fd) { return set != nullptr && FD_ISSET(fd, set); }

int to_milliseconds(const timeval* timeout) {
  if (timeout == nullptr) return -1;
  const std::int64_t ms = static_cast<std::int64_t>(timeout->tv_sec) * 1000 + (timeout->tv_usec + 999) / 1000;
  return static_cast<int>(std::min<std::int64_t>(ms, 0x7fffffff));
}

int select_guarded(int count, fd_set* read, fd_set* write, fd_set* except, const timeval* timeout) {
  std::vector<pollfd> fds;
  for (int fd = 0; fd < count; ++fd) {
    short events = 0;
    if (is_set(read, fd)) events |= POLLIN;
    if (is_set(write, fd)) events |= POLLOUT;
    if (events != 0 || is_set(except, fd)) fds.push_back({fd, events, 0});
  }
  const int result = poll_guarded(fds.data(), fds.size(), to_milliseconds(timeout));
  if (result < 0) return result;
  for (fd_set* set : {read, write, except}) {
    if (set != nullptr) FD_ZERO(set);
  }
  int found = 0;
  const auto add = [&](fd_set* set, int fd) {
    if (set == nullptr) return;
    FD_SET(fd, set);
    ++found;
  };
  for (const pollfd& fd : fds) {
    if ((fd.revents & (POLLIN | POLLHUP | POLLERR)) != 0 && (fd.events & POLLIN) != 0) add(read, fd.fd);
    if ((fd.revents & (POLLOUT | POLLERR)) != 0 && (fd.events & POLLOUT) != 0) add(write, fd.fd);
    if ((fd.revents & POLLPRI) != 0) add(except, fd.fd);
  }
  return found;
}

}  // namespace
}  // namespace uroce::rdmacm

using namespace uroce::rdmacm;

UROCE_EXPORT int rpoll(struct pollfd* fds, nfds_t nfds, int timeout) { return poll_guarded(fds, nfds, timeout); }

UROCE_EXPORT int rselect(int nfds, fd_set* readfds, fd_set* writefds, fd_set* exceptfds, struct timeval* timeout) {
  try {
    return select_guarded(nfds, readfds, writefds, exceptfds, timeout);
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return -1;
  }
}
