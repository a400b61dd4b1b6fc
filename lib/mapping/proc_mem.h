// Memory of a client that can't be mapped, reached through the kernel (/proc/PID/mem, which stays with the memory
// that the process had when it was opened, whatever it executes later).
//
// A page fault on the way can last as long as the client likes (userfaultfd, a FUSE file mapped privately), and
// nothing but its end gets a thread out of it. So a thread of the session's own makes the system calls, and
// whoever needs the bytes waits for it no longer than the user's StallBudget lasts. From then on every such access
// of the session fails at once, until that thread is back. Where the user could stop the daemon anyway it is enough
// to look whether the pages are there (/proc/PID/pagemap): then worker and conductor copy by themselves, which is
// quicker by a change of threads. Nobody else is trusted not to take a page away in between.
//
// io() on any worker; the rest on the conductor.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>

#include "base/spinlock.h"
#include "mapping/stall_budget.h"
#include "memory/table.h"
#include "platform/unique_fd.h"

namespace uroce::daemon {

struct Peer;

struct MemoryFiles {
  UniqueFd memory;
  UniqueFd pagemap;  ///< invalid: the session's own thread makes all accesses
};

/// The memory of the process at the other end of a socket. 0, or why not: ESRCH, EPERM (who asks is not allowed to
/// debug that process, or a program with more rights than the user's runs in it), or another errno.
int open_memory(const Peer& peer, MemoryFiles& out);

class ProcMemAccess {
 public:
  /// `few_cores`: waiting for another thread by spinning keeps that from running.
  ProcMemAccess(MemoryFiles files, std::shared_ptr<StallBudget> stall_budget, const std::atomic<bool>& few_cores);
  /// Does not wait for a thread that is stuck.
  ~ProcMemAccess();
  ProcMemAccess(const ProcMemAccess&) = delete;
  ProcMemAccess& operator=(const ProcMemAccess&) = delete;

  const memory::IndirectIo& io() const { return io_; }
  /// Whether the byte at `address` can be read: 0, EFAULT, or ETIMEDOUT.
  int probe(std::uint64_t address);

 private:
  class AccessThread;
  int transfer(bool writes, std::uint64_t address, std::byte* data, std::size_t bytes);

  bool are_there(std::uint64_t address, std::size_t bytes) const;

  MemoryFiles files_;
  const std::atomic<bool>& few_cores_;
  std::shared_ptr<AccessThread> access_thread_;
  memory::IndirectIo io_;
};

}  // namespace uroce::daemon
