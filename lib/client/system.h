// System calls for the session's socket without the C library's wrappers: a preloaded librspreload intercepts all
// socket calls of the process and would track our descriptors as its own. Unlike the wrappers, these calls are not
// cancellation points. All return -1 and set errno on failure.
#pragma once

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace uroce::client::sys {

inline int socket(int domain, int type, int protocol) {
  return static_cast<int>(::syscall(SYS_socket, domain, type, protocol));
}
inline int connect(int fd, const sockaddr* address, socklen_t bytes) {
  return static_cast<int>(::syscall(SYS_connect, fd, address, bytes));
}
inline ssize_t send_message(int fd, const msghdr* message, int flags) {
  long n;
  do {
    n = ::syscall(SYS_sendmsg, fd, message, flags);
  } while (n < 0 && errno == EINTR);
  return n;
}
inline ssize_t receive_message(int fd, msghdr* message, int flags) {
  long n;
  do {
    n = ::syscall(SYS_recvmsg, fd, message, flags);
  } while (n < 0 && errno == EINTR);
  return n;
}
inline void shut_down(int fd) { (void)::syscall(SYS_shutdown, fd, SHUT_RDWR); }
inline void close(int fd) {
  if (fd < 0) return;
#ifdef __SANITIZE_THREAD__
  ::close(fd);  // else ThreadSanitizer reports a race with the next user of the number
#else
  (void)::syscall(SYS_close, fd);
#endif
}
inline int open(const char* path, int flags, mode_t mode) {
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}
inline ssize_t write(int fd, const void* data, std::size_t bytes) { return ::syscall(SYS_write, fd, data, bytes); }

}  // namespace uroce::client::sys
