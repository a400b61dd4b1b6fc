// Owner of a file descriptor. How it is closed is the caller's choice: the client libraries must avoid the C
// library's close() (client/system.h, page_sharing/raw_syscall.h), the daemon uses it.
#pragma once

#include <utility>

namespace uroce::base {

/// Close{}(fd) closes a descriptor. A negative number means "none".
template <class Close>
class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(long fd) : fd_(static_cast<int>(fd)) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(other.release()) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  ~OwnedFd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  /// Gives up ownership without closing.
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1) {
    if (fd_ >= 0) Close{}(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

}  // namespace uroce::base
