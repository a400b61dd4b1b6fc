// What every rsocket is to the r* calls: a number, and a stream or a datagram socket behind it.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

namespace uroce::rdmacm {

/// An eventfd of the calling thread, by which others wake it. Taken before a socket's state is looked at, so that a
/// change after the look is not slept through.
int waker_fd();
/// Takes what has woken this thread.
void drain_waker();

/// The descriptor, moved to a number above those that programs get from the kernel: select under librspreload takes
/// a program's descriptor for an rsocket when an rsocket's number is the lower one. -1 stays -1.
int high_number(int fd);

/// Threads that sleep until a socket changes, by their wakers. The socket's mutex guards it.
class Watchers {
 public:
  void add(int waker) { wakers_.push_back(waker); }
  void remove(int waker);
  /// Wakes all but the calling thread.
  void wake_others();

 private:
  std::vector<int> wakers_;
};

/// Defaults of new sockets: built in, or from the files that rsocket(7) names.
struct Defaults {
  std::uint32_t polling_us = 10, inline_size = 64, sq_size = 384, rq_size = 384;
  std::uint32_t receive_buffer = 1 << 21, send_buffer = 1 << 20, iomap_entries = 0;
};
const Defaults& defaults();

/// A message of one call: buffers to fill or to send.
struct Buffers {
  const iovec* vectors;
  std::size_t count;
  std::size_t total() const {
    std::size_t sum = 0;
    for (std::size_t i = 0; i < count; ++i) sum += vectors[i].iov_len;
    return sum;
  }
};

/// Walks through Buffers.
class BufferCursor {
 public:
  explicit BufferCursor(const Buffers& buffers) : buffers_(buffers) {}

  /// The next bytes that lie together, at most `most`.
  iovec next(std::size_t most) const;
  void skip(std::size_t bytes);
  void copy_out(void* to, std::size_t bytes);  ///< from the buffers
  void copy_in(const void* from, std::size_t bytes);

 private:
  const Buffers& buffers_;
  mutable std::size_t index_ = 0, offset_ = 0;
};

/// Calls return what the socket call of the name does, with -errno for an error. Thread-safe; close() is the last
/// call, made once, and others under way end with an error.
class Socket {
 public:
  Socket(int domain, int type) : domain_(domain), type_(type) {}
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  virtual ~Socket() = default;

  /// The rsocket's number: a file descriptor that nothing else can get while the socket lives.
  virtual int fd() const = 0;
  int domain() const { return domain_; }
  int type() const { return type_; }

  virtual int bind(const sockaddr* addr, socklen_t length) = 0;
  virtual int listen(int backlog) = 0;
  virtual int accept(std::shared_ptr<Socket>& accepted) = 0;
  virtual int connect(const sockaddr* addr, socklen_t length) = 0;
  virtual int shutdown(int how) = 0;
  virtual void close() = 0;

  virtual ssize_t send(const Buffers& from, int flags, const sockaddr* to, socklen_t length) = 0;
  /// `from` may be null; it gets the sender's address, cut to *length.
  virtual ssize_t receive(const Buffers& to, int flags, sockaddr* from, socklen_t* length) = 0;

  virtual int peer_name(sockaddr* addr, socklen_t* length) = 0;
  virtual int local_name(sockaddr* addr, socklen_t* length) = 0;
  virtual int set_option(int level, int name, const void* value, socklen_t length) = 0;
  virtual int get_option(int level, int name, void* value, socklen_t* length) = 0;

  /// Which of `events`, and of POLLERR and POLLHUP, hold now.
  virtual short ready(short events) = 0;
  /// The same, before a sleep: this thread watches until unwatch(), and `sleep_on` gets the descriptors that tell
  /// of what comes in.
  virtual short watch(short events, int waker, std::vector<pollfd>& sleep_on) = 0;
  virtual void unwatch(int waker) = 0;

  std::atomic<int> status_flags{0};      ///< F_GETFL
  std::atomic<int> descriptor_flags{0};  ///< F_GETFD

 private:
  const int domain_, type_;
};

/// Copies an address as getsockname() does: cut to *length, which gets the whole length.
inline int copy_address(const sockaddr* from, sockaddr* to, socklen_t* length) {
  const socklen_t whole = from->sa_family == AF_IB ? 48 : from->sa_family == AF_INET6 ? 28 : 16;
  if (const socklen_t part = std::min(*length, whole); part > 0) std::memcpy(to, from, part);
  *length = whole;
  return 0;
}

std::shared_ptr<Socket> find_socket(int fd);
void insert_socket(std::shared_ptr<Socket> socket);
/// The socket that had this number, which is free from now on; null when there is none.
std::shared_ptr<Socket> remove_socket(int fd);

}  // namespace uroce::rdmacm
