#include "mapping/closer.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>

#include "mapping/helper_thread.h"
#include "platform/log.h"

namespace uroce::mapping {
namespace {

// The thread ends when there is nothing to do for so long.
constexpr auto kLinger = std::chrono::milliseconds(200);

/// A descriptor to close, or a socket with a message to discard.
struct Item {
  UniqueFd file;
  bool empty = false;  ///< the file is to be emptied before
  int socket = -1;
  std::function<void()> done;
};

void drop_pages(int file) {
  constexpr off_t kPage = 4096;
  struct stat info {};
  if (::fstat(file, &info) != 0 || info.st_size == 0) return;
  // Whole pages: of a part of one, only the bytes would go.
  const off_t bytes = (info.st_size + kPage - 1) / kPage * kPage;
  static_cast<void>(::fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, bytes));
}

void finish(Item& item) {
  if (item.empty) drop_pages(item.file.get());
  if (item.socket >= 0) {
    // Without room for descriptors: the kernel closes those of the message on this thread.
    char byte;
    static_cast<void>(::recv(item.socket, &byte, sizeof(byte), MSG_DONTWAIT));
    try {
      item.done();
    } catch (const std::exception&) {
      platform::log(platform::LogLevel::kError, "no memory is free: the session of a discarded message is closed");
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

  static void start(const std::shared_ptr<Work>& self) noexcept {
    const std::lock_guard lock(self->mutex);
    if (self->running || self->items.empty()) return;
    self->running = start_helper_thread([self] { self->run(); });
  }
  /// False: no memory is free.
  static bool add(const std::shared_ptr<Work>& self, Item& item) noexcept {
    {
      const std::lock_guard lock(self->mutex);
      try {
        self->items.emplace_back();
      } catch (const std::exception&) {
        return false;
      }
      self->items.back() = std::move(item);
      ++self->unfinished;
    }
    self->arrived.notify_one();
    start(self);
    return true;
  }
  static void add_file(const std::shared_ptr<Work>& self, UniqueFd file, bool empty = false) noexcept {
    if (!file.valid()) return;
    Item item;
    item.file = std::move(file);
    item.empty = empty;
    if (add(self, item)) return;
    platform::log(platform::LogLevel::kError, "no memory is free: a client's descriptor stays open");
    static_cast<void>(item.file.release());
  }
  std::size_t backlog() noexcept {
    const std::lock_guard lock(mutex);
    return unfinished;
  }
};

Closer::Closer() : foreign_(std::make_shared<Work>()), own_(std::make_shared<Work>()) {}
Closer::~Closer() = default;  // the threads finish what there is

void Closer::retry() noexcept {
  Work::start(foreign_);
  Work::start(own_);
}

void Closer::close(UniqueFd file) noexcept { Work::add_file(foreign_, std::move(file)); }

void Closer::close(std::vector<UniqueFd> files) noexcept {
  for (UniqueFd& file : files) Work::add_file(foreign_, std::move(file));
}

void Closer::close_empty(UniqueFd file) noexcept { Work::add_file(foreign_, std::move(file), true); }

void Closer::close_socket(UniqueFd socket) noexcept {
  if (!socket.valid()) return;
  const bool may_wait = holds_messages(socket.get());
  Work::add_file(may_wait ? foreign_ : own_, std::move(socket));
}

// A message without room for its sender's credentials is reported as cut off, however short it is.
bool Closer::holds_messages(int socket) noexcept {
  const int on = 1;
  ::shutdown(socket, SHUT_RDWR);
  ::setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
  char byte;
  iovec part{&byte, sizeof(byte)};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  return ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_PEEK) >= 0 && (message.msg_flags & MSG_CTRUNC) != 0;
}

void Closer::discard_message(int socket, std::function<void()> done) noexcept {
  Item item;
  item.socket = socket;
  item.done = std::move(done);
  // Without memory the session waits until its request times out, and is closed.
  static_cast<void>(Work::add(foreign_, item));
}

std::size_t Closer::backlog() const noexcept { return foreign_->backlog() + own_->backlog(); }
bool Closer::is_full() const noexcept { return foreign_->backlog() >= kFull; }

}  // namespace uroce::mapping
