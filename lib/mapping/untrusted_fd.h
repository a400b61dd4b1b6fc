// Descriptors that came from clients. Such a descriptor may refer to a file of a FUSE server that never answers, or
// to a socket with SO_LINGER: then fstat, fstatfs and even close may block for ever. So unless the file is in
// shared memory, helper threads make these calls, and the control thread gives up on one that gets stuck. Closing
// even a file in shared memory may take long: the last close frees its pages.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "mapping/closer.h"
#include "mapping/stall_budget.h"
#include "platform/unique_fd.h"

namespace uroce::mapping {

struct FileFacts {
  dev_t device = 0;
  ino_t inode = 0;
  std::uint32_t magic = 0;  ///< of its file system; 0: of one whose page faults a server answers
  std::uint64_t block_bytes = 0;
  std::uint64_t bytes = 0;  ///< its length
  bool regular = false;     ///< a regular file; a dma-buf need not be one
};

/// Whether it is a file in shared memory (memfd, tmpfs, hugetlbfs), on which no call blocks.
bool is_memory_file(int fd);

/// 0, EBADF, or ETIMEDOUT: no answer within the stall budget of the descriptor's owner.
int examine(int fd, const std::shared_ptr<StallBudget>& stall_budget, FileFacts& out);

/// A descriptor that came from a client: the closer of the user closes it.
class ForeignFd {
 public:
  ForeignFd() = default;
  ForeignFd(UniqueFd file, std::shared_ptr<StallBudget> owner)
      : ForeignFd(std::move(file), std::move(owner), false) {}
  ~ForeignFd() { reset(); }
  ForeignFd(ForeignFd&& from) noexcept = default;
  ForeignFd& operator=(ForeignFd&& from) noexcept {
    reset();
    file_ = std::move(from.file_);
    owner_ = std::move(from.owner_);
    is_socket_ = from.is_socket_;
    return *this;
  }

  int get() const { return file_.get(); }
  bool valid() const { return file_.valid(); }
  void reset() noexcept {
    if (!file_.valid()) return;
    Closer& closer = owner_->closer();
    is_socket_ ? closer.close_socket(std::move(file_)) : closer.close(std::move(file_));
  }

 protected:
  ForeignFd(UniqueFd file, std::shared_ptr<StallBudget> owner, bool is_socket)
      : file_(std::move(file)), owner_(std::move(owner)), is_socket_(is_socket) {}

 private:
  UniqueFd file_;
  std::shared_ptr<StallBudget> owner_;
  bool is_socket_ = false;  ///< of the daemon
};

/// A Unix socket that the daemon made or accepted, at whose other end a client is.
class ClientSocket : public ForeignFd {
 public:
  ClientSocket() = default;
  ClientSocket(UniqueFd socket, std::shared_ptr<StallBudget> owner)
      : ForeignFd(std::move(socket), std::move(owner), true) {}
};

}  // namespace uroce::mapping
