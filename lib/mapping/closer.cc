#include "mapping/closer.h"

#include <pthread.h>
#include <sys/socket.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>

#include "mapping/helper_thread.h"
#include "platform/log.h"

namespace uroce::daemon {
namespace {

// The thread ends when there is nothing to do for so long.
constexpr auto kLinger = std::chrono::milliseconds(200);

/// A descriptor to close, or a socket with a message to discard.
struct Item {
  UniqueFd file;
  int socket = -1;
  std::function<void()> done;
};

void finish(Item& item) {
  if (item.socket >= 0) {
    // Without room for descriptors: the kernel closes those of the message on this thread.
    msghdr nothing{};
    static_cast<void>(::recvmsg(item.socket, &nothing, MSG_DONTWAIT));
    try {
      item.done();
    } catch (const std::exception&) {
      log(LogLevel::kError, "no memory is free: the session of a discarded message is closed");
    }
  }
  item = {};
}

}  // namespace

struct Closer::Work {
  std::mutex mutex;
  std::condition_variable arrived;
  std::deque<Item> items;
  std::size_t unfinished = 0;  ///< items, and the one that the thread works on
  bool running = false;

  void run() {
    ::pthread_setname_np(::pthread_self(), "closer");
    std::unique_lock lock(mutex);
    while (arrived.wait_for(lock, kLinger, [this] { return !items.empty(); })) {
      Item item = std::move(items.front());
      items.pop_front();
      lock.unlock();
      finish(item);
      lock.lock();
      --unfinished;
    }
    running = false;
  }
};

Closer::Closer() : work_(std::make_shared<Work>()) {}
Closer::~Closer() = default;  // the thread finishes what there is

void Closer::retry() noexcept {
  const std::lock_guard lock(work_->mutex);
  if (work_->running || work_->items.empty()) return;
  work_->running = start_helper_thread([work = work_] { work->run(); });
}

void Closer::close(UniqueFd file) noexcept {
  std::vector<UniqueFd> files;
  try {
    files.push_back(std::move(file));
  } catch (const std::exception&) {
    log(LogLevel::kError, "no memory is free: a client's descriptor stays open");
    static_cast<void>(file.release());
  }
  close(std::move(files));
}

void Closer::close(std::vector<UniqueFd> files) noexcept {
  {
    const std::lock_guard lock(work_->mutex);
    for (UniqueFd& file : files) {
      if (!file.valid()) continue;
      try {
        work_->items.emplace_back();
      } catch (const std::exception&) {
        log(LogLevel::kError, "no memory is free: a client's descriptor stays open");
        static_cast<void>(file.release());
        continue;
      }
      work_->items.back().file = std::move(file);
      ++work_->unfinished;
    }
  }
  work_->arrived.notify_one();
  retry();
}

void Closer::discard_message(int socket, std::function<void()> done) noexcept {
  {
    const std::lock_guard lock(work_->mutex);
    try {
      work_->items.push_back({UniqueFd(), socket, std::move(done)});
      ++work_->unfinished;
    } catch (const std::exception&) {
      return;  // the session waits until its request times out, and is closed
    }
  }
  work_->arrived.notify_one();
  retry();
}

std::size_t Closer::backlog() const noexcept {
  const std::lock_guard lock(work_->mutex);
  return work_->unfinished;
}

}  // namespace uroce::daemon
