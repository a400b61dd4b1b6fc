#include "rsocket/socket.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdio>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

namespace uroce::rdmacm {
namespace {

struct Waker {
  int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  ~Waker() { ::close(fd); }
};

thread_local Waker waker;

// Never freed: sockets may be used until the process ends.
struct Table {
  std::shared_mutex mutex;
  std::unordered_map<int, std::shared_ptr<Socket>> sockets;
};
Table& table() {
  static auto* instance = new Table;
  return *instance;
}

void read_setting(const char* name, std::uint32_t& value) {
  const std::string path = std::string("/etc/rdma/rsocket/") + name;
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return;
  unsigned read = 0;
  if (std::fscanf(file, "%u", &read) == 1) value = read;
  std::fclose(file);
}

}  // namespace

int high_number(int fd) {
  // Less than FD_SETSIZE and the usual limit of descriptors.
  constexpr int kFirst = 512;
  const int moved = fd < 0 ? -1 : fcntl(fd, F_DUPFD, kFirst);
  if (moved < 0) return fd;
  ::close(fd);
  return moved;
}

int waker_fd() { return waker.fd; }

void drain_waker() {
  eventfd_t value;
  eventfd_read(waker.fd, &value);
}

void Watchers::remove(int waker) {
  const auto at = std::find(wakers_.begin(), wakers_.end(), waker);
  if (at != wakers_.end()) wakers_.erase(at);
}

void Watchers::wake_others() {
  if (wakers_.empty()) return;
  const int own = waker_fd();
  for (const int waker : wakers_) {
    if (waker != own) eventfd_write(waker, 1);
  }
}

const Defaults& defaults() {
  static const Defaults read = [] {
    Defaults d;
    read_setting("polling_time", d.polling_us);
    read_setting("inline_default", d.inline_size);
    read_setting("sqsize_default", d.sq_size);
    read_setting("rqsize_default", d.rq_size);
    read_setting("mem_default", d.receive_buffer);
    read_setting("wmem_default", d.send_buffer);
    read_setting("iomap_size", d.iomap_entries);
    return d;
  }();
  return read;
}

iovec BufferCursor::next(std::size_t most) const {
  while (index_ < buffers_.count && offset_ == buffers_.vectors[index_].iov_len) {
    ++index_;
    offset_ = 0;
  }
  if (index_ == buffers_.count) return {nullptr, 0};
  const iovec& v = buffers_.vectors[index_];
  return {static_cast<std::byte*>(v.iov_base) + offset_, std::min(most, v.iov_len - offset_)};
}

void BufferCursor::skip(std::size_t bytes) {
  while (bytes > 0) {
    const std::size_t part = next(bytes).iov_len;
    if (part == 0) return;
    offset_ += part;
    bytes -= part;
  }
}

void BufferCursor::copy_out(void* to, std::size_t bytes) {
  auto* at = static_cast<std::byte*>(to);
  while (bytes > 0) {
    const iovec part = next(bytes);
    if (part.iov_len == 0) return;
    std::memcpy(at, part.iov_base, part.iov_len);
    offset_ += part.iov_len;
    at += part.iov_len;
    bytes -= part.iov_len;
  }
}

void BufferCursor::copy_in(const void* from, std::size_t bytes) {
  const auto* at = static_cast<const std::byte*>(from);
  while (bytes > 0) {
    const iovec part = next(bytes);
    if (part.iov_len == 0) return;
    std::memcpy(part.iov_base, at, part.iov_len);
    offset_ += part.iov_len;
    at += part.iov_len;
    bytes -= part.iov_len;
  }
}

std::shared_ptr<Socket> find_socket(int fd) {
  Table& t = table();
  const std::shared_lock lock(t.mutex);
  const auto at = t.sockets.find(fd);
  return at == t.sockets.end() ? nullptr : at->second;
}

void insert_socket(std::shared_ptr<Socket> socket) {
  Table& t = table();
  const std::lock_guard lock(t.mutex);
  const int fd = socket->fd();
  t.sockets[fd] = std::move(socket);
}

std::shared_ptr<Socket> remove_socket(int fd) {
  Table& t = table();
  const std::lock_guard lock(t.mutex);
  const auto at = t.sockets.find(fd);
  if (at == t.sockets.end()) return nullptr;
  std::shared_ptr<Socket> removed = std::move(at->second);
  t.sockets.erase(at);
  return removed;
}

}  // namespace uroce::rdmacm
