// A bounded queue of values from any number of threads to one reader.
//
//   kSleepsOnFd   the reader waits in epoll: fd() becomes readable when an empty channel gets an entry (conductor)
//   kPolls        the reader calls waiting() in each duty cycle; the channel has no descriptor, and the
//                 caller of put() then calls WorkerCore::wake() (worker)
//
// Edges: put() stores waiting_ before the caller of WorkerCore::wake() loads the worker's `sleeping_` flag; the
// worker stores that flag before it loads waiting(). All are seq_cst, so one of the two sees the other.
#pragma once

#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <span>
#include <vector>

#include "platform/unique_fd.h"

namespace uroce::worker {

enum class ChannelReader { kSleepsOnFd, kPolls };

template <class T>
class Channel {
 public:
  Channel(std::size_t limit, ChannelReader reader)
      : limit_(limit), fd_(reader == ChannelReader::kPolls ? -1 : ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    items_.reserve(kReserved);
  }

  /// Appends one item. False: the channel is full.
  bool put(const T& item) { return put(std::span(&item, 1)) == 1; }
  /// Appends the first items, as many as fit, and returns their number.
  std::size_t put(std::span<const T> items) {
    bool was_empty;
    std::size_t taken;
    {
      std::lock_guard lock(mutex_);
      was_empty = items_.empty();
      taken = std::min(items.size(), limit_ - items_.size());
      items_.insert(items_.end(), items.begin(), items.begin() + static_cast<std::ptrdiff_t>(taken));
      if (taken != 0) waiting_.store(true, std::memory_order_seq_cst);
    }
    if (fd_.valid() && was_empty && taken != 0) ::eventfd_write(fd_.get(), 1);
    return taken;
  }

  bool waiting() const { return waiting_.load(std::memory_order_seq_cst); }

  /// Reader: replaces the content of `items` with all that is queued. The channel continues with the storage of
  /// `items`, so neither side allocates memory as long as the same vector is passed.
  void take(std::vector<T>& items) {
    items.clear();
    if (fd_.valid()) {
      eventfd_t ignored;
      ::eventfd_read(fd_.get(), &ignored);
    }
    std::lock_guard lock(mutex_);
    waiting_.store(false, std::memory_order_relaxed);
    items_.swap(items);
  }
  /// Reader: everything that is queued. Allocates the storage with which the channel continues.
  std::vector<T> take() {
    std::vector<T> items;
    items.reserve(kReserved);
    take(items);
    return items;
  }

  int fd() const { return fd_.get(); }

 private:
  static constexpr std::size_t kReserved = 64;  // entries for which put() needs no memory

  const std::size_t limit_;
  UniqueFd fd_;
  std::mutex mutex_;
  std::vector<T> items_;
  std::atomic<bool> waiting_{false};
};

}  // namespace uroce::worker
