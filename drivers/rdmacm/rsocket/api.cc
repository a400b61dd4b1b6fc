// The r* functions of rdma/rsocket.h (rsocket(7)): they look up the socket of a number and turn -errno into errno.
#include <fcntl.h>
#include <netinet/in.h>
#include <rdma/rsocket.h>

#include <cerrno>
#include <cstdarg>
#include <memory>
#include <new>
#include <system_error>

#include "export.h"
#include "rsocket/datagram.h"
#include "rsocket/epoll.h"
#include "rsocket/socket.h"
#include "rsocket/stream.h"

using namespace uroce::rdmacm;

namespace {

template <class Result>
Result to_errno(Result r) {
  if (r >= 0) return r;
  errno = static_cast<int>(-r);
  return -1;
}

// Calls f(socket), which returns a result or -errno.
template <class F>
auto on_socket(int number, F&& f) -> decltype(f(std::declval<Socket&>())) {
  try {
    const std::shared_ptr<Socket> socket = find_socket(number);
    if (socket != nullptr) return to_errno(f(*socket));
    errno = EBADF;
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
  } catch (const std::system_error& e) {
    errno = e.code().value();
  }
  return -1;
}

template <class F>
auto on_stream(int number, F&& f) -> decltype(f(std::declval<Stream&>())) {
  using Result = decltype(f(std::declval<Stream&>()));
  return on_socket(number, [&](Socket& s) -> Result {
    return s.type() == SOCK_STREAM ? f(static_cast<Stream&>(s)) : Result{-EOPNOTSUPP};
  });
}

ssize_t send(int socket, const iovec* vectors, std::size_t count, int flags, const sockaddr* to, socklen_t length) {
  return on_socket(socket, [&](Socket& s) { return s.send({vectors, count}, flags, to, length); });
}
ssize_t receive(int socket, const iovec* vectors, std::size_t count, int flags, sockaddr* from, socklen_t* length) {
  return on_socket(socket, [&](Socket& s) { return s.receive({vectors, count}, flags, from, length); });
}

int new_socket(int domain, int type, int protocol) {
  const int kind = type & ~(SOCK_CLOEXEC | SOCK_NONBLOCK);
  const bool stream = kind == SOCK_STREAM && (protocol == 0 || protocol == IPPROTO_TCP);
  const bool datagram = kind == SOCK_DGRAM && (protocol == 0 || protocol == IPPROTO_UDP);
  const bool ip = domain == AF_INET || domain == AF_INET6;
  if (!(ip || (stream && domain == AF_IB)) || (!stream && !datagram)) return fail(ENOTSUP);
  std::shared_ptr<Socket> made;
  if (stream) made = Stream::make(domain);
  if (datagram) made = Datagram::make(domain);
  if (made == nullptr) return -1;
  made->status_flags = (type & SOCK_NONBLOCK) != 0 ? O_NONBLOCK : 0;
  made->descriptor_flags = (type & SOCK_CLOEXEC) != 0 ? FD_CLOEXEC : 0;
  const int number = made->fd();
  insert_socket(std::move(made));
  return number;
}

}  // namespace

UROCE_EXPORT int rsocket(int domain, int type, int protocol) {
  return guarded(-1, [&] { return new_socket(domain, type, protocol); });
}

UROCE_EXPORT int rbind(int socket, const struct sockaddr* addr, socklen_t addrlen) {
  return on_socket(socket, [&](Socket& s) { return s.bind(addr, addrlen); });
}

UROCE_EXPORT int rlisten(int socket, int backlog) {
  return on_socket(socket, [&](Socket& s) { return s.listen(backlog); });
}

UROCE_EXPORT int raccept(int socket, struct sockaddr* addr, socklen_t* addrlen) {
  return on_socket(socket, [&](Socket& s) {
    std::shared_ptr<Socket> accepted;
    if (const int failed = s.accept(accepted)) return failed;
    if (addr != nullptr && addrlen != nullptr) accepted->peer_name(addr, addrlen);
    const int number = accepted->fd();
    insert_socket(std::move(accepted));
    return number;
  });
}

UROCE_EXPORT int rconnect(int socket, const struct sockaddr* addr, socklen_t addrlen) {
  return on_socket(socket, [&](Socket& s) { return s.connect(addr, addrlen); });
}

UROCE_EXPORT int rshutdown(int socket, int how) {
  if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) return fail(EINVAL);
  return on_socket(socket, [&](Socket& s) { return s.shutdown(how); });
}

UROCE_EXPORT int rclose(int socket) {
  const std::shared_ptr<Socket> removed = remove_socket(socket);
  if (removed == nullptr) return close_set(socket) ? 0 : fail(EBADF);
  return guarded(-1, [&] {
    removed->close();
    return 0;
  });
}

UROCE_EXPORT ssize_t rrecv(int socket, void* buf, size_t len, int flags) {
  const iovec vector{buf, len};
  return receive(socket, &vector, 1, flags, nullptr, nullptr);
}

UROCE_EXPORT ssize_t rrecvfrom(int socket, void* buf, size_t len, int flags, struct sockaddr* src_addr,
                               socklen_t* addrlen) {
  const iovec vector{buf, len};
  return receive(socket, &vector, 1, flags, src_addr, addrlen);
}

UROCE_EXPORT ssize_t rrecvmsg(int socket, struct msghdr* msg, int flags) {
  if (msg->msg_control != nullptr && msg->msg_controllen != 0) return fail(ENOTSUP);
  auto* from = static_cast<sockaddr*>(msg->msg_name);
  msg->msg_flags = 0;
  return receive(socket, msg->msg_iov, msg->msg_iovlen, flags, from, from != nullptr ? &msg->msg_namelen : nullptr);
}

UROCE_EXPORT ssize_t rread(int socket, void* buf, size_t count) { return rrecv(socket, buf, count, 0); }

UROCE_EXPORT ssize_t rreadv(int socket, const struct iovec* iov, int iovcnt) {
  if (iovcnt < 0) return fail(EINVAL);
  return receive(socket, iov, static_cast<std::size_t>(iovcnt), 0, nullptr, nullptr);
}

UROCE_EXPORT ssize_t rsend(int socket, const void* buf, size_t len, int flags) {
  return rsendto(socket, buf, len, flags, nullptr, 0);
}

UROCE_EXPORT ssize_t rsendto(int socket, const void* buf, size_t len, int flags, const struct sockaddr* dest_addr,
                             socklen_t addrlen) {
  const iovec vector{const_cast<void*>(buf), len};
  return send(socket, &vector, 1, flags, dest_addr, addrlen);
}

UROCE_EXPORT ssize_t rsendmsg(int socket, const struct msghdr* msg, int flags) {
  if (msg->msg_control != nullptr && msg->msg_controllen != 0) return fail(ENOTSUP);
  return send(socket, msg->msg_iov, msg->msg_iovlen, flags, static_cast<const sockaddr*>(msg->msg_name),
              msg->msg_namelen);
}

UROCE_EXPORT ssize_t rwrite(int socket, const void* buf, size_t count) { return rsend(socket, buf, count, 0); }

UROCE_EXPORT ssize_t rwritev(int socket, const struct iovec* iov, int iovcnt) {
  if (iovcnt < 0) return fail(EINVAL);
  return send(socket, iov, static_cast<std::size_t>(iovcnt), 0, nullptr, 0);
}

UROCE_EXPORT int rgetpeername(int socket, struct sockaddr* addr, socklen_t* addrlen) {
  return on_socket(socket, [&](Socket& s) { return s.peer_name(addr, addrlen); });
}

UROCE_EXPORT int rgetsockname(int socket, struct sockaddr* addr, socklen_t* addrlen) {
  return on_socket(socket, [&](Socket& s) { return s.local_name(addr, addrlen); });
}

UROCE_EXPORT int rsetsockopt(int socket, int level, int optname, const void* optval, socklen_t optlen) {
  return on_socket(socket, [&](Socket& s) { return s.set_option(level, optname, optval, optlen); });
}

UROCE_EXPORT int rgetsockopt(int socket, int level, int optname, void* optval, socklen_t* optlen) {
  return on_socket(socket, [&](Socket& s) { return s.get_option(level, optname, optval, optlen); });
}

UROCE_EXPORT int rfcntl(int socket, int cmd, ...) {
  va_list args;
  va_start(args, cmd);
  const int value = cmd == F_SETFL || cmd == F_SETFD ? va_arg(args, int) : 0;
  va_end(args);
  return on_socket(socket, [&](Socket& s) {
    switch (cmd) {
      case F_GETFL: return s.status_flags.load();
      case F_SETFL: s.status_flags = value; return 0;
      case F_GETFD: return s.descriptor_flags.load();
      case F_SETFD: s.descriptor_flags = value; return 0;
      default: return -ENOTSUP;
    }
  });
}

UROCE_EXPORT off_t riomap(int socket, void* buf, size_t len, int prot, int, off_t offset) {
  return on_stream(socket, [&](Stream& s) { return s.map(buf, len, prot, offset); });
}

UROCE_EXPORT int riounmap(int socket, void* buf, size_t len) {
  return on_stream(socket, [&](Stream& s) { return s.unmap(buf, len); });
}

UROCE_EXPORT size_t riowrite(int socket, const void* buf, size_t count, off_t offset, int flags) {
  return static_cast<size_t>(on_stream(socket, [&](Stream& s) { return s.write_at(buf, count, offset, flags); }));
}
