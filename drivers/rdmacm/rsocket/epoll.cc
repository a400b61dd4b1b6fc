#include "rsocket/epoll.h"

#include <fcntl.h>
#include <rdma/rsocket.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "export.h"
#include "rsocket/socket.h"
#include "rsocket/wait.h"

namespace uroce::rdmacm {
namespace {

/// An eventfd, or -1.
class Bell {
 public:
  Bell() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~Bell() {
    if (fd_ >= 0) ::close(fd_);
  }
  Bell(const Bell&) = delete;
  Bell& operator=(const Bell&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

/// What one repoll_create() has made. Like poll(2) it looks at each member: EPOLLET is taken for level-triggered.
class Set {
 public:
  /// errno.
  int change(int operation, int fd, const epoll_event* event) {
    const std::lock_guard lock(mutex_);
    const auto at = members_.find(fd);
    const bool known = at != members_.end();
    if (operation == EPOLL_CTL_DEL) {
      if (!known) return ENOENT;
      members_.erase(at);
      wake();
      return 0;
    }
    if (operation != EPOLL_CTL_ADD && operation != EPOLL_CTL_MOD) return EINVAL;
    if (operation == EPOLL_CTL_ADD && known) return EEXIST;
    if (operation == EPOLL_CTL_MOD && !known) return ENOENT;
    if (operation == EPOLL_CTL_ADD && find_socket(fd) == nullptr && ::fcntl(fd, F_GETFD) < 0) return EBADF;
    if (event == nullptr) return EFAULT;
    members_[fd] = *event;
    wake();
    return 0;
  }

  /// As epoll_wait(2). -1 with errno.
  int wait(epoll_event* out, int most, int timeout_ms) {
    const std::uint64_t start = now_us();
    int left = 0;
    while (true) {
      const int found = look(out, most, left);
      if (found != 0 || timeout_ms == 0) return found;
      if (closed()) return fail(EBADF);
      if (timeout_ms > 0) {
        const auto passed = static_cast<std::int64_t>((now_us() - start) / 1000);
        if (left != 0 && passed >= timeout_ms) return 0;
        left = static_cast<int>(std::max<std::int64_t>(timeout_ms - passed, 1));
      } else {
        left = -1;
      }
    }
  }

  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    wake();
  }

 private:
  bool closed() {
    const std::lock_guard lock(mutex_);
    return closed_;
  }

  void wake() {
    for (const int bell : sleepers_) ::eventfd_write(bell, 1);
  }

  /// Sleeps for at most `timeout_ms`, until a member has events or the set is changed.
  int look(epoll_event* out, int most, int timeout_ms) {
    std::unique_ptr<Bell> bell;
    if (timeout_ms != 0) {
      bell = std::make_unique<Bell>();
      if (bell->fd() < 0) return -1;
    }
    std::vector<pollfd> fds;
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return 0;
      for (const auto& [fd, event] : members_) {
        // EPOLLONESHOT has happened: not even EPOLLERR is reported.
        if (event.events != kSpent) fds.push_back({fd, static_cast<short>(event.events & kEvents), 0});
      }
      if (bell != nullptr) {
        fds.push_back({bell->fd(), POLLIN, 0});
        sleepers_.push_back(bell->fd());
      }
    }
    const int result = ::rpoll(fds.data(), fds.size(), timeout_ms);
    const int error = errno;
    const std::lock_guard lock(mutex_);
    if (bell != nullptr) {
      std::erase(sleepers_, bell->fd());
      fds.pop_back();
    }
    errno = error;
    return result < 0 ? result : report(fds, out, most);
  }

  /// What holds of members that are still there, beginning where the last report ended.
  int report(const std::vector<pollfd>& fds, epoll_event* out, int most) {
    const auto begin = std::ranges::upper_bound(fds, last_, {}, &pollfd::fd) - fds.begin();
    int found = 0;
    for (std::size_t i = 0; i < fds.size() && found < most; ++i) {
      const pollfd& fd = fds[(static_cast<std::size_t>(begin) + i) % fds.size()];
      const auto at = members_.find(fd.fd);
      if (fd.revents == 0 || at == members_.end()) continue;
      if ((fd.revents & POLLNVAL) != 0) {  // it was closed
        members_.erase(at);
        continue;
      }
      out[found].events = static_cast<std::uint32_t>(static_cast<unsigned short>(fd.revents));
      out[found++].data = at->second.data;
      if ((at->second.events & EPOLLONESHOT) != 0) at->second.events = kSpent;
      last_ = fd.fd;
    }
    return found;
  }

  static constexpr std::uint32_t kEvents =
      EPOLLIN | EPOLLPRI | EPOLLOUT | EPOLLRDNORM | EPOLLRDBAND | EPOLLWRNORM | EPOLLWRBAND | EPOLLRDHUP;
  static constexpr std::uint32_t kSpent = EPOLLONESHOT;

  std::mutex mutex_;  // of all that follows
  std::map<int, epoll_event> members_;
  std::vector<int> sleepers_;
  int last_ = -1;
  bool closed_ = false;
};

// Never freed: sets may be used until the process ends.
struct Sets {
  std::mutex mutex;
  std::unordered_map<int, std::shared_ptr<Set>> by_number;
};
Sets& sets() {
  static auto* const instance = new Sets;
  return *instance;
}

std::shared_ptr<Set> find_set(int number) {
  const std::lock_guard lock(sets().mutex);
  const auto at = sets().by_number.find(number);
  return at == sets().by_number.end() ? nullptr : at->second;
}

/// EBADF or EINVAL, as epoll_ctl(2).
int no_set(int number) { return fail(::fcntl(number, F_GETFD) < 0 ? EBADF : EINVAL); }

}  // namespace

bool close_set(int number) {
  std::shared_ptr<Set> closed;
  {
    const std::lock_guard lock(sets().mutex);
    const auto at = sets().by_number.find(number);
    if (at == sets().by_number.end()) return false;
    closed = std::move(at->second);
    sets().by_number.erase(at);
  }
  closed->close();
  ::close(number);
  return true;
}

}  // namespace uroce::rdmacm

using namespace uroce::rdmacm;

UROCE_EXPORT int repoll_create(int flags) {
  return guarded(-1, [&] {
    if ((flags & ~(EPOLL_CLOEXEC | O_NONBLOCK)) != 0) return fail(EINVAL);
    auto made = std::make_shared<Set>();
    const int number = high_number(::eventfd(0, EFD_CLOEXEC));
    if (number < 0) return -1;
    const std::lock_guard lock(sets().mutex);
    sets().by_number[number] = std::move(made);
    return number;
  });
}

UROCE_EXPORT int repoll_ctl(int number, int operation, int fd, epoll_event* event) {
  return guarded(-1, [&] {
    const std::shared_ptr<Set> set = find_set(number);
    if (set == nullptr) return no_set(number);
    if (fd == number) return fail(EINVAL);
    return result(set->change(operation, fd, event));
  });
}

UROCE_EXPORT int repoll_wait(int number, epoll_event* events, int most, int timeout_ms) {
  return guarded(-1, [&] {
    const std::shared_ptr<Set> set = find_set(number);
    if (set == nullptr) return no_set(number);
    if (events == nullptr || most <= 0) return fail(EINVAL);
    return set->wait(events, most, timeout_ms);
  });
}
