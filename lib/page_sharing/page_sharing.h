// Makes any memory of this process reachable for the daemon (ARCHITECTURE.md, "Sharing memory").
//
// Anonymous private memory is moved, while other threads go on writing, into one sealed memfd of this process;
// memory that is shared already is passed as it is; what can't be moved is left to indirect access. Thread-safe,
// and a child of fork gets private copies. One per process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace uroce::page_sharing {

/// A run of pages in a file. The descriptor stays open at least until the matching unshare(). A file of the
/// program's own may be read-only if it wasn't asked for as writable, may be not sealed (the program can truncate
/// it), and may be on hugetlbfs, where only multiples of the huge page (st_blksize of fstat) can be mapped: round
/// out.
struct SharedPiece {
  int fd = -1;
  std::uint64_t offset = 0;  ///< bytes, page-aligned
  std::uint64_t bytes = 0;   ///< page-aligned
};

struct SharedRange {
  /// Cover the pages of the range in order, at most 64. Empty: indirect access only.
  std::vector<SharedPiece> pieces;
};

class PageSharing {
 public:
  static PageSharing& instance();

  /// Shares the pages that hold [address, address + bytes), and counts a user of each. `writable`: the daemon shall
  /// be able to write. errno: 0, EFAULT (not mapped, or not writable though it must be), ENOMEM.
  int share(const void* address, std::size_t bytes, bool writable, SharedRange& out);

  /// Undoes one share() of the same range. Pages without users become ordinary private anonymous memory again.
  void unshare(const void* address, std::size_t bytes);

 private:
  PageSharing();
  struct Impl;
  Impl* impl_;  // never freed: programs deregister from static destructors
};

}  // namespace uroce::page_sharing
