#include "page_sharing/populate.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "page_sharing/raw_syscall.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

namespace uroce::page_sharing {
namespace {

// Only files of shared memory have seals. Pages of other files are a cache of what is on a disk.
bool in_memory(int fd) { return raw_syscall(SYS_fcntl, fd, F_GET_SEALS) >= 0; }

// Reading a page of a memory file allocates it as writing does, and needs no right to write.
int populate_piece(std::uintptr_t at, const SharedPiece& piece) {
  long result = 0;
  do {
    result = raw_syscall(SYS_madvise, at, piece.bytes, MADV_POPULATE_READ);
  } while (result == -EINTR);
  if (result == -EINVAL) return populate_file(piece);  // before Linux 5.14
  return result == 0 || result == -ENOMEM ? static_cast<int>(-result) : EFAULT;
}

}  // namespace

int populate(const void* address, const SharedRange& range) {
  constexpr std::uintptr_t kPageMask = ~std::uintptr_t{4095};
  std::uintptr_t at = reinterpret_cast<std::uintptr_t>(address) & kPageMask;
  for (const SharedPiece& piece : range.pieces) {
    if (in_memory(piece.fd)) {
      if (const int error = populate_piece(at, piece); error != 0) return error;
    }
    at += piece.bytes;
  }
  return 0;
}

int populate_file(const SharedPiece& piece) {
  struct stat info {};
  if (::fstat(piece.fd, &info) != 0) return EFAULT;
  const auto unit = static_cast<std::uint64_t>(info.st_blksize);  // of hugetlbfs, the size of its pages
  const std::uint64_t begin = piece.offset / unit * unit;
  const std::uint64_t bytes = (piece.offset + piece.bytes - begin + unit - 1) / unit * unit;
  const long at =
      raw_syscall(SYS_mmap, nullptr, bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE | MAP_POPULATE, piece.fd, begin);
  if (at < 0 && at > -4096) return ENOMEM;
  raw_syscall(SYS_munmap, at, bytes);
  return 0;
}

}  // namespace uroce::page_sharing
