// Blocks threads that access a range of memory while it is being replaced, by userfaultfd(2) in write-protect mode.
#pragma once

#include <cstddef>
#include <cstdint>

#include "page_sharing/raw_syscall.h"

namespace uroce::page_sharing {

/// The userfaultfd of the process, opened when first needed. One per process; the child of a fork must call
/// forget().
class Userfault {
 public:
  enum class Mode : std::uint8_t {
    kUnknown,
    kFull,  ///< system calls of other threads block, too
    /// UFFD_USER_MODE_ONLY, for unprivileged processes: system calls of other threads into the range fail with
    /// EFAULT
    kUserOnly,
    kForbidden,
  };

  /// Opens the descriptor if necessary. Tests may force a weaker mode than the process could use.
  Mode mode();

  /// Whether shared memory can be protected, too (Linux 5.19).
  bool guards_shared() { return mode() != Mode::kForbidden && guards_shared_; }

  /// Write-protects [start, start + bytes) and catches accesses to missing pages. 0 or errno; EBUSY: the range is
  /// registered with another userfaultfd.
  int protect(std::uintptr_t start, std::size_t bytes);
  /// To be called after the range was replaced: wakes the blocked threads.
  void wake(std::uintptr_t start, std::size_t bytes);
  /// To be called if the range was not replaced: removes the protection and wakes the blocked threads.
  void unprotect(std::uintptr_t start, std::size_t bytes);

  /// Copies pages to absent ones of a protected range, where threads may wait for them.
  void fill(std::uintptr_t to, std::uintptr_t from, std::size_t bytes);

  /// To be called in the child of a fork: the descriptor refers to the parent's memory.
  void forget();

 private:
  bool open(Mode mode);
  bool still_ours() const;

  RawFd fd_;
  Mode mode_ = Mode::kUnknown;
  bool guards_shared_ = false;
};

}  // namespace uroce::page_sharing
