// The child of a fork must not share moved pages with its parent. It copies them before fork(2) returns there, and
// the parent's fork() returns when the copy is complete. Until then the other threads of the parent can't write to
// these pages, so that the child gets the memory as it was at the fork.

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>

#include <memory>
#include <new>

#include "page_sharing/page_sharing_impl.h"

namespace uroce::page_sharing {

namespace {

constexpr int kChildCopyMs = 10'000;  // limit for a child that is stopped; the parent then continues

}  // namespace

std::atomic<PageSharing::Impl*> PageSharing::Impl::watched = nullptr;

// In the child, handlers run in the order of their registration (pthread_atfork(3)). The earlier this one is
// registered, the fewer other handlers write to pages that still belong to the parent.
void PageSharing::Impl::on_load() {
  ThreadList::note_main_thread();
  pthread_atfork(
      +[] {
        if (Impl* impl = watched.load(std::memory_order_acquire)) impl->before_fork();
      },
      +[] {
        if (Impl* impl = watched.load(std::memory_order_acquire)) impl->after_fork_in_parent();
      },
      +[] {
        if (Impl* impl = watched.load(std::memory_order_acquire)) impl->after_fork_in_child();
      });
}

void PageSharing::Impl::before_fork() {
  const std::uint64_t all = ~std::uint64_t{0};
  std::uint64_t before = 0;
  raw_syscall(SYS_rt_sigprocmask, 0 /* SIG_BLOCK */, &all, &before, sizeof(before));
  mutex.lock();
  signals_before_fork = before;
  fork_ranges = nullptr;
  if (file_inode == 0) return;
  void* at = arena.allocate(sizeof(Ranges));
  if (at == nullptr) return;
  fork_ranges = new (at) Ranges(arena);
  int ends[2] = {-1, -1};
  if (find_mappings(*fork_ranges) && !fork_ranges->empty() && raw_syscall(SYS_pipe2, ends, O_CLOEXEC) == 0) {
    child_done_read = RawFd(ends[0]);
    child_done_write = RawFd(ends[1]);
  }
}

void PageSharing::Impl::after_fork_in_parent() {
  if (child_done_read.valid()) {
    child_done_write.reset();
    // Only in full mode: in user mode, system calls of other threads would fail. Instead, the child may see later
    // writes.
    const bool guard = threads.read() && !threads.single() && mover.userfault().guards_shared() &&
                       mover.userfault().mode() == Userfault::Mode::kFull;
    for (Range& range : *fork_ranges) {
      if (guard && mover.userfault().protect(range.start, range.end - range.start) != 0) range.end = range.start;
    }
    pollfd waiting = {child_done_read.get(), POLLIN, 0};
    timespec limit = {kChildCopyMs / 1000, 0};
    while (raw_syscall(SYS_ppoll, &waiting, 1, &limit, nullptr, 0) == -EINTR) {
    }
    for (const Range& range : *fork_ranges) {
      if (guard && range.end > range.start) mover.userfault().unprotect(range.start, range.end - range.start);
    }
    child_done_read.reset();
  }
  if (fork_ranges != nullptr) {
    std::destroy_at(fork_ranges);
    arena.release(fork_ranges, sizeof(Ranges));
    fork_ranges = nullptr;
  }
  const std::uint64_t before = signals_before_fork;
  mutex.unlock();
  raw_syscall(SYS_rt_sigprocmask, 2 /* SIG_SETMASK */, &before, nullptr, sizeof(before));
}

void PageSharing::Impl::after_fork_in_child() {
  const std::uint64_t before = signals_before_fork;
  child_done_read.reset();
  become_child();
  child_done_write.reset();  // the parent reads end of file, as it does if the child dies before
  new (&mutex) std::mutex;   // it is locked by a thread that exists in the parent only
  raw_syscall(SYS_rt_sigprocmask, 2 /* SIG_SETMASK */, &before, nullptr, sizeof(before));
}

void PageSharing::Impl::become_child() {
  process = raw_syscall(SYS_getpid);
  mover.userfault().forget();
  Ranges ranges(arena);
  if (file_inode != 0 && find_mappings(ranges)) {
    for (const Range& range : ranges) {
      const std::size_t bytes = range.end - range.start;
      if (mover.to_private_alone(range.start, bytes, range.protection, file.get(), range.offset) != 0) {
        // Out of memory. At least, no write of the child may reach the parent.
        map_pages(range.start, bytes, range.protection, MAP_PRIVATE | MAP_FIXED, file.get(), range.offset);
      }
    }
  }
  originals.clear_in_child(reader);
  registrations.clear();
  users.clear();
  leftover.clear();
  indirect.clear();
  files.clear();
  file.reset();
  file_inode = 0;
  next_place = kAddressEnd;
  moves = 0;
  crowded = false;
}

}  // namespace uroce::page_sharing
