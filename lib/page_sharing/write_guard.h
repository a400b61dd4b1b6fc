// Holds back whoever touches a range of memory while it is replaced (userfaultfd: write protection, and absent
// pages).
#pragma once

#include <cstddef>
#include <cstdint>

#include "page_sharing/raw_syscall.h"

namespace uroce::page_sharing {

/// The process's userfaultfd, opened when first needed. One per process; a child of fork must forget() it.
class Userfault {
 public:
  enum class Mode : std::uint8_t {
    kUnknown,
    kFull,      ///< system calls of other threads wait, too
    kUserOnly,  ///< what an unprivileged process gets: system calls of other threads into the range get EFAULT
    kForbidden,
  };

  /// Opens if need be; tests may ask for a weaker mode than the process could have.
  Mode mode();

  /// Whether memory that is shared already can be protected (Linux 5.19).
  bool guards_shared() { return mode() != Mode::kForbidden && guards_shared_; }

  /// Write-protects the pages of [start, start + bytes) and catches accesses to absent ones. 0 or errno; EBUSY:
  /// some other userfaultfd is there already.
  int protect(std::uintptr_t start, std::size_t bytes);
  /// The range was replaced: lets go who waits.
  void wake(std::uintptr_t start, std::size_t bytes);
  /// The range was not replaced: takes the protection away and lets go who waits.
  void unprotect(std::uintptr_t start, std::size_t bytes);

  /// In a child of fork: the descriptor is that of the parent's memory.
  void forget();

 private:
  bool open(Mode mode);
  bool still_ours() const;

  RawFd fd_;
  Mode mode_ = Mode::kUnknown;
  bool guards_shared_ = false;
};

}  // namespace uroce::page_sharing
