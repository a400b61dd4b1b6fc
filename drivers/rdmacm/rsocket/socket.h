// The interface of an rsocket for the r* functions (rsocket(7)): a file descriptor number, and a stream or datagram
// socket.
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

/// An eventfd(2) by which other threads wake the calling thread. Obtained before the socket's state is checked, so
/// that no later change is missed.
int waker_fd();
/// Resets the eventfd of the calling thread.
void drain_waker();

/// Moves a descriptor to a number above those that the kernel assigns first: select() of librspreload treats any
/// descriptor above an rsocket's number as an rsocket. -1 stays -1.
int high_number(int fd);

/// The eventfds of threads that wait for a change of the socket. The socket's mutex guards it.
class Watchers {
 public:
  void add(int waker) { wakers_.push_back(waker); }
  void remove(int waker);
  /// Wakes all but the calling thread.
  void wake_others();

 private:
  std::vector<int> wakers_;
};

/// Default sizes of new sockets: built in, or from the files that rsocket(7) lists.
struct Defaults {
  std::uint32_t polling_us = 10, inline_size = 64, sq_size = 384, rq_size = 384;
  std::uint32_t receive_buffer = 1 << 21, send_buffer = 1 << 20, iomap_entries = 0;
};
const Defaults& defaults();

/// The buffers of one call, to send from or to receive into.
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

  /// The next contiguous bytes, at most `most`.
  iovec next(std::size_t most) const;
  void skip(std::size_t bytes);
  void copy_out(void* to, std::size_t bytes);  ///< from the buffers
  void copy_in(const void* from, std::size_t bytes);

 private:
  const Buffers& buffers_;
  mutable std::size_t index_ = 0, offset_ = 0;
};

/// Functions return the result of the socket call of that name, or -errno. Thread-safe. close() is called once, as
/// the last function; concurrent calls end with an error.
class Socket {
 public:
  Socket(int domain, int type) : domain_(domain), type_(type) {}
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  virtual ~Socket() = default;

  /// The number of the rsocket: a descriptor that is reserved while the socket exists.
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
  /// `from` may be null. It receives the sender's address, truncated to *length.
  virtual ssize_t receive(const Buffers& to, int flags, sockaddr* from, socklen_t* length) = 0;

  virtual int peer_name(sockaddr* addr, socklen_t* length) = 0;
  virtual int local_name(sockaddr* addr, socklen_t* length) = 0;
  virtual int set_option(int level, int name, const void* value, socklen_t length) = 0;
  virtual int get_option(int level, int name, void* value, socklen_t* length) = 0;

  /// Which of `events`, POLLERR and POLLHUP hold now (poll(2)).
  virtual short ready(short events) = 0;
  /// ready(), and prepares a sleep: changes wake this thread until unwatch(), and `sleep_on` receives the
  /// descriptors to wait for in addition.
  virtual short watch(short events, int waker, std::vector<pollfd>& sleep_on) = 0;
  virtual void unwatch(int waker) = 0;

  std::atomic<int> status_flags{0};      ///< F_GETFL
  std::atomic<int> descriptor_flags{0};  ///< F_GETFD

 private:
  const int domain_, type_;
};

/// Copies an address as getsockname(2) does: truncated to *length, which receives the full length.
inline int copy_address(const sockaddr* from, sockaddr* to, socklen_t* length) {
  const socklen_t whole = from->sa_family == AF_IB ? 48 : from->sa_family == AF_INET6 ? 28 : 16;
  if (const socklen_t part = std::min(*length, whole); part > 0) std::memcpy(to, from, part);
  *length = whole;
  return 0;
}

std::shared_ptr<Socket> find_socket(int fd);
void insert_socket(std::shared_ptr<Socket> socket);
/// Removes the socket from the table and returns it; null if the number does not name an rsocket.
std::shared_ptr<Socket> remove_socket(int fd);

}  // namespace uroce::rdmacm
