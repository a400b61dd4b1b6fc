#include "page_sharing/page_mover.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <iterator>

#include "base/scope_guard.h"
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

/// New memory that is unmapped unless put_at() has moved it.
class Scratch {
 public:
  Scratch(void* at, std::size_t bytes, int protection)
      : at_(static_cast<std::byte*>(at)), bytes_(bytes), protection_(protection) {}
  ~Scratch() {
    if (at_ != nullptr) unmap_pages(at_, bytes_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  bool valid() const { return at_ != nullptr; }
  std::byte* at() const { return at_; }

  int set_protection(int protection) {
    if (protection == protection_) return 0;
    const long result = raw_syscall(SYS_mprotect, at_, bytes_, protection);
    if (result < 0) return static_cast<int>(-result);
    protection_ = protection;
    return 0;
  }
  int put_at(std::uintptr_t to) {
    const int error = replace(at_, to, bytes_);
    if (error == 0) at_ = nullptr;
    return error;
  }

 private:
  std::byte* at_;
  std::size_t bytes_;
  int protection_;
};

constexpr int kReadWrite = PROT_READ | PROT_WRITE;

/// Memory like that of the original mapping, or else new anonymous memory. `protection` receives that of the
/// memory.
void* map_private(Original original, std::size_t bytes, int& protection) {
  void* at = original.copy != 0 ? map_like(original, bytes) : nullptr;
  protection = at != nullptr ? PROT_NONE : kReadWrite;
  return at != nullptr ? at : map_pages(0, bytes, kReadWrite, MAP_PRIVATE | MAP_ANONYMOUS);
}

}  // namespace

int PageMover::to_shared(std::uintptr_t start, std::size_t bytes, int protection, bool single, int file,
                         std::uint64_t offset, Original* original) {
  if (!single && userfault_.mode() == Userfault::Mode::kForbidden) return EBUSY;
  // System calls of other threads that read an absent page would fail instead of waiting.
  if (!single && userfault_.mode() == Userfault::Mode::kUserOnly) original = nullptr;
  for (std::size_t done = 0; done < bytes; done += kStepBytes) {
    const std::size_t step = std::min(bytes - done, kStepBytes);
    const int error =
        step_to_shared(start + done, step, protection, single, file, offset + done, done == 0 ? original : nullptr);
    if (error != 0) return error == EBUSY && done == 0 ? EBUSY : ENOMEM;
  }
  return 0;
}

int PageMover::step_to_shared(std::uintptr_t start, std::size_t bytes, int protection, bool single, int file,
                              std::uint64_t offset, Original* original) {
  Scratch scratch(map_pages(0, bytes, kReadWrite, MAP_SHARED, file, offset), bytes, kReadWrite);
  if (!scratch.valid()) return ENOMEM;
  if (original != nullptr && (protection & PROT_WRITE) != 0) populate(start, single);
  // take_first_page() would unlock the whole mapping without counting that (VmLck of proc(5)).
  if (original != nullptr && locked(start)) {
    original->locked = raw_syscall(SYS_munlock, start, kPageBytes) == 0;
  }
  base::ScopeGuard lock_again([&] {
    if (original != nullptr && original->locked) raw_syscall(SYS_mlock, start, kPageBytes);
  });
  if (!single && userfault_.protect(start, bytes) != 0) return EBUSY;
  int error = copy_present(start, bytes, scratch.at());
  if (error == 0) error = scratch.set_protection(protection);
  // The first page is absent until put_at(): other threads that touch it wait.
  const std::uintptr_t first = error == 0 && original != nullptr ? take_first_page(start) : 0;
  if (error == 0) error = scratch.put_at(start);
  if (error != 0 && first != 0) return_first_page(first, start, single);
  if (!single && error == 0) userfault_.wake(start, bytes);
  if (!single && error != 0) userfault_.unprotect(start, bytes);
  if (error != 0) return error;
  lock_again.dismiss();
  if (first != 0) original->copy = empty_copy(first);
  return 0;
}

// A mapping gets its anon_vma with its first page. The parts of a divided mapping that had none get different ones,
// and can't be joined again. A fault of memory that the program has registered with a userfaultfd must not wait for
// the program: such memory isn't moved, and /proc/self/mem fails there.
void PageMover::populate(std::uintptr_t page, bool single) {
  unsigned char present = 0;
  if (raw_syscall(SYS_mincore, page, kPageBytes, &present) == 0 && (present & 1) != 0) return;
  if (!single) {
    if (userfault_.protect(page, kPageBytes) != 0) return;
    userfault_.unprotect(page, kPageBytes);
    raw_syscall(SYS_madvise, page, kPageBytes, MADV_POPULATE_WRITE);
    return;
  }
  const RawFd memory(raw_syscall(SYS_openat, AT_FDCWD, "/proc/self/mem", O_RDWR | O_CLOEXEC));
  std::byte first;
  if (raw_syscall(SYS_pread64, memory.get(), &first, 1, page) == 1) {
    raw_syscall(SYS_pwrite64, memory.get(), &first, 1, page);
  }
}

// mremap(2) could fail once more. Neither of these ways takes another mapping.
void PageMover::return_first_page(std::uintptr_t from, std::uintptr_t to, bool single) {
  if (single) {
    const RawFd memory(raw_syscall(SYS_openat, AT_FDCWD, "/proc/self/mem", O_WRONLY | O_CLOEXEC));
    raw_syscall(SYS_pwrite64, memory.get(), from, kPageBytes, to);  // also to read-only memory
  } else {
    userfault_.fill(to, from, kPageBytes);
  }
  unmap_pages(reinterpret_cast<void*>(from), kPageBytes);
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
                          std::uint64_t offset, Original original, bool& in_place) {
  // A read-only mapping needs no guard.
  const bool guard = !single && (protection & PROT_WRITE) != 0;
  if (guard && !userfault_.guards_shared()) {
    in_place = true;
    return to_private_in_place(start, bytes, protection, file, offset);
  }
  for (std::size_t done = 0; done < bytes; done += kStepBytes) {
    const std::size_t step = std::min(bytes - done, kStepBytes);
    int error = step_to_private(start + done, step, protection, guard, file, offset + done,
                                {original.copy, original.skip + done, original.locked});
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
  return step_to_private(start, bytes, protection, false, file, offset, {});
}

int PageMover::step_to_private(std::uintptr_t start, std::size_t bytes, int protection, bool guard, int file,
                               std::uint64_t offset, Original original) {
  int initial = PROT_NONE;
  void* const memory = map_private(original, bytes, initial);
  Scratch scratch(memory, bytes, initial);
  if (!scratch.valid()) return ENOMEM;
  if (guard && userfault_.protect(start, bytes) != 0) return EBUSY;
  int error = for_each_data(file, offset, offset + bytes, [&](std::uint64_t from, std::uint64_t to) {
    // Only now: memory that has been writable is accounted for, and is not joined with memory that never was.
    const int refused = scratch.set_protection(kReadWrite);
    return refused != 0 ? refused : read_fully(file, scratch.at() + (from - offset), to - from, from);
  });
  if (error == 0) error = scratch.set_protection(protection);
  if (error == 0 && original.locked) raw_syscall(SYS_mlock, scratch.at(), bytes);  // or not: RLIMIT_MEMLOCK
  if (error == 0) error = scratch.put_at(start);
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
