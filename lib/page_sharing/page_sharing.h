// Makes any memory of this process accessible to the daemon without a copy. docs/memory-sharing.md.
//
// Anonymous private memory is moved into one sealed memfd of this process (memfd_create(2)) while other threads
// keep writing to it. Memory that is shared already is passed on by its file. The rest is left to indirect access
// through /proc/PID/mem. Thread-safe; a child of fork(2) gets private copies. There is one instance per process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace uroce::page_sharing {

/// A run of pages in a file. The descriptor stays open at least until the matching unshare(). A file of the program
/// may be read-only (unless write access was requested), may not be sealed, so that the program can truncate it,
/// and may be on hugetlbfs, where only multiples of the huge page size (st_blksize of fstat(2)) can be mapped:
/// round outwards.
struct SharedPiece {
  int fd = -1;
  std::uint64_t offset = 0;  ///< bytes, page-aligned
  std::uint64_t bytes = 0;   ///< page-aligned
};

struct SharedRange {
  /// The pieces that cover the pages of the range, in order; at most 64, no two of which adjoin. Empty: indirect
  /// access.
  std::vector<SharedPiece> pieces;
};

class PageSharing {
 public:
  static PageSharing& instance();

  /// Shares the pages that contain [address, address + bytes) and adds a user to each. `writable`: the daemon needs
  /// write access. errno: 0, EFAULT (not mapped, or read-only memory with `writable`), ENOMEM.
  int share(const void* address, std::size_t bytes, bool writable, SharedRange& out);

  /// Undoes one share() of the same range. Pages that have no user left become private anonymous memory again.
  void unshare(const void* address, std::size_t bytes);

 private:
  PageSharing();
  struct Impl;
  Impl* impl_;  // never freed: static destructors of the program may deregister regions
};

}  // namespace uroce::page_sharing
