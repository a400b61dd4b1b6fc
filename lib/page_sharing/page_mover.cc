#include "page_sharing/page_mover.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <iterator>

#include "page_sharing/page_arena.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace uroce::page_sharing {

namespace {

constexpr std::uint64_t kPagePresent = std::uint64_t{1} << 63;
constexpr std::uint64_t kPageSwapped = std::uint64_t{1} << 62;

/// Repeats pread(2) until `bytes` are read. 0 or errno; EIO also at the end of the file.
int read_fully(int fd, std::byte* to, std::size_t bytes, std::uint64_t offset) {
  while (bytes > 0) {
    const long got = raw_syscall(SYS_pread64, fd, to, bytes, offset);
    if (got == -EINTR) continue;
    if (got < 0) return static_cast<int>(-got);
    if (got == 0) return EIO;
    to += got;
    bytes -= static_cast<std::size_t>(got);
    offset += static_cast<std::uint64_t>(got);
  }
  return 0;
}

/// Calls visit(from, to) for each part of the file that holds data (lseek(2), SEEK_DATA). Returns the first error.
template <class F>
int for_each_data(int file, std::uint64_t start, std::uint64_t end, F&& visit) {
  while (start < end) {
    const long data = raw_syscall(SYS_lseek, file, start, SEEK_DATA);
    if (data == -ENXIO) return 0;
    if (data < 0) return static_cast<int>(-data);
    const auto from = static_cast<std::uint64_t>(data);
    if (from >= end) return 0;
    const long hole = raw_syscall(SYS_lseek, file, from, SEEK_HOLE);
    if (hole < 0) return static_cast<int>(-hole);
    const std::uint64_t to = std::min(static_cast<std::uint64_t>(hole), end);
    const int error = visit(from, to);
    if (error != 0) return error;
    start = to;
  }
  return 0;
}

/// Replaces the mapping at `to` by the one at `from`, atomically for all threads (mremap(2)).
int replace(std::byte* from, std::uintptr_t to, std::size_t bytes) {
  const long result = raw_syscall(SYS_mremap, from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to);
  return result < 0 && result > -4096 ? static_cast<int>(-result) : 0;
}

/// A mapping that is unmapped unless put_at() has moved it.
struct Scratch {
  Scratch(std::size_t n, int flags, int fd, std::uint64_t offset)
      : at(static_cast<std::byte*>(map_pages(0, n, PROT_READ | PROT_WRITE, flags, fd, offset))), bytes(n) {}
  ~Scratch() {
    if (at != nullptr) unmap_pages(at, bytes);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  int put_at(std::uintptr_t to, int protection) {
    if (protection != (PROT_READ | PROT_WRITE)) {
      const long result = raw_syscall(SYS_mprotect, at, bytes, protection);
      if (result < 0) return static_cast<int>(-result);
    }
    const int error = replace(at, to, bytes);
    if (error == 0) at = nullptr;
    return error;
  }

  std::byte* at;
  std::size_t bytes;
};

}  // namespace

int PageMover::to_shared(std::uintptr_t start, std::size_t bytes, int protection, bool single, int file,
                         std::uint64_t offset) {
  if (!single && userfault_.mode() == Userfault::Mode::kForbidden) return EBUSY;
  for (std::size_t done = 0; done < bytes; done += kStepBytes) {
    const std::size_t step = std::min(bytes - done, kStepBytes);
    const int error = step_to_shared(start + done, step, protection, single, file, offset + done);
    if (error != 0) return error == EBUSY && done == 0 ? EBUSY : ENOMEM;
  }
  return 0;
}

int PageMover::step_to_shared(std::uintptr_t start, std::size_t bytes, int protection, bool single, int file,
                              std::uint64_t offset) {
  Scratch scratch(bytes, MAP_SHARED, file, offset);
  if (scratch.at == nullptr) return ENOMEM;
  if (!single && userfault_.protect(start, bytes) != 0) return EBUSY;
  int error = copy_present(start, bytes, scratch.at);
  if (error == 0) error = scratch.put_at(start, protection);
  if (single) return error;
  if (error == 0) {
    userfault_.wake(start, bytes);
  } else {
    userfault_.unprotect(start, bytes);
  }
  return error;
}

// Absent pages are skipped (/proc/self/pagemap, kernel documentation admin-guide/mm/pagemap.rst), so that a sparse
// range stays sparse. The others are read through /proc/self/mem: if another thread frees pages at the same time,
// such a read fails, whereas a load would wait for ever.
int PageMover::copy_present(std::uintptr_t start, std::size_t bytes, std::byte* to) {
  const RawFd pagemap(raw_syscall(SYS_openat, AT_FDCWD, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  const RawFd memory(raw_syscall(SYS_openat, AT_FDCWD, "/proc/self/mem", O_RDONLY | O_CLOEXEC));
  if (!pagemap.valid() || !memory.valid()) return EBUSY;
  std::uint64_t entries[256];
  const std::size_t pages = bytes / kPageBytes;
  for (std::size_t first = 0; first < pages; first += std::size(entries)) {
    const std::size_t count = std::min(pages - first, std::size(entries));
    const std::uint64_t where = (start / kPageBytes + first) * sizeof(entries[0]);
    if (read_fully(pagemap.get(), reinterpret_cast<std::byte*>(entries), count * sizeof(entries[0]), where) != 0) {
      return EBUSY;
    }
    for (std::size_t i = 0; i < count;) {
      if ((entries[i] & (kPagePresent | kPageSwapped)) == 0) {
        ++i;
        continue;
      }
      std::size_t end = i + 1;
      while (end < count && (entries[end] & (kPagePresent | kPageSwapped)) != 0) ++end;
      const std::size_t at = (first + i) * kPageBytes;
      int error = read_fully(memory.get(), to + at, (end - i) * kPageBytes, start + at);
      for (std::size_t page = i; error == EIO && page < end; ++page) {  // a page has gone: read page by page
        const std::size_t one = (first + page) * kPageBytes;
        const int single = read_fully(memory.get(), to + one, kPageBytes, start + one);
        if (single != 0 && single != EIO) error = single;
      }
      if (error != 0 && error != EIO) return ENOMEM;
      i = end;
    }
  }
  return 0;
}

int PageMover::to_private(std::uintptr_t start, std::size_t bytes, int protection, bool single, int file,
                          std::uint64_t offset, bool& in_place) {
  // A read-only mapping needs no guard.
  const bool guard = !single && (protection & PROT_WRITE) != 0;
  if (guard && !userfault_.guards_shared()) {
    in_place = true;
    return to_private_in_place(start, bytes, protection, file, offset);
  }
  for (std::size_t done = 0; done < bytes; done += kStepBytes) {
    const std::size_t step = std::min(bytes - done, kStepBytes);
    int error = step_to_private(start + done, step, protection, guard, file, offset + done);
    if (error == EBUSY) {
      in_place = true;
      error = to_private_in_place(start + done, step, protection, file, offset + done);
    }
    if (error != 0) return error;
  }
  return 0;
}

int PageMover::to_private_alone(std::uintptr_t start, std::size_t bytes, int protection, int file,
                                std::uint64_t offset) {
  return step_to_private(start, bytes, protection, false, file, offset);
}

int PageMover::step_to_private(std::uintptr_t start, std::size_t bytes, int protection, bool guard, int file,
                               std::uint64_t offset) {
  Scratch scratch(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (scratch.at == nullptr) return ENOMEM;
  if (guard && userfault_.protect(start, bytes) != 0) return EBUSY;
  int error = for_each_data(file, offset, offset + bytes, [&](std::uint64_t from, std::uint64_t to) {
    return read_fully(file, scratch.at + (from - offset), to - from, from);
  });
  if (error == 0) error = scratch.put_at(start, protection);
  if (!guard) return error;
  if (error == 0) {
    userfault_.wake(start, bytes);
  } else {
    userfault_.unprotect(start, bytes);
  }
  return error;
}

// The kernel copies each page at the first write to it (MAP_PRIVATE), so no write is lost.
int PageMover::to_private_in_place(std::uintptr_t start, std::size_t bytes, int protection, int file,
                                   std::uint64_t offset) {
  if (map_pages(start, bytes, protection, MAP_PRIVATE | MAP_FIXED, file, offset) == nullptr) return ENOMEM;
  return for_each_data(file, offset, offset + bytes, [&](std::uint64_t from, std::uint64_t to) {
    const std::uintptr_t at = start + (from - offset);
    const long result = raw_syscall(SYS_madvise, at, to - from, MADV_POPULATE_WRITE);
    if (result == 0) return 0;
    if (result != -EINVAL) return static_cast<int>(-result);
    for (std::uint64_t page = 0; page < to - from; page += kPageBytes) {  // before Linux 5.14
      __atomic_fetch_or(reinterpret_cast<std::uint8_t*>(at + page), 0, __ATOMIC_RELAXED);
    }
    return 0;
  });
}

}  // namespace uroce::page_sharing
