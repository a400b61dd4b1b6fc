// Memory of a client that cannot be mapped, accessed through /proc/PID/mem. The descriptor refers to the address
// space that the process had when it was opened; execve(2) does not change it.
//
// A page fault may block on a server that the client controls (userfaultfd, a FUSE file mapped privately), and
// cannot be interrupted. So an access thread of the session makes the system calls, and callers wait for it no
// longer than the user's StallBudget allows. After that, every such access of the session fails at once until the
// thread returns. A user that could stop the daemon anyway is trusted not to remove pages: if the pages are present
// (/proc/PID/pagemap), the caller copies them itself, which saves two context switches.
//
// Call contract. io() on any worker; everything else on the control thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>

#include "base/spinlock.h"
#include "mapping/pagemap.h"
#include "mapping/stall_budget.h"
#include "memory/table.h"
#include "platform/unique_fd.h"

namespace uroce::platform {
struct Peer;
}

namespace uroce::mapping {

struct MemoryFiles {
  UniqueFd memory;
  Pagemap pagemap;  ///< invalid: the access thread makes all accesses
};

/// Opens the memory of the process at the other end of a socket. 0, ESRCH, EPERM (the daemon may not trace that
/// process, or the process runs a program with more rights than its user), or another errno.
int open_memory(const platform::Peer& peer, MemoryFiles& out);

class ProcMemAccess {
 public:
  /// `few_cores`: do not spin while waiting, as that keeps the access thread from running.
  ProcMemAccess(MemoryFiles files, std::shared_ptr<StallBudget> stall_budget, const std::atomic<bool>& few_cores);
  /// Does not wait for an access thread that is stuck.
  ~ProcMemAccess();
  ProcMemAccess(const ProcMemAccess&) = delete;
  ProcMemAccess& operator=(const ProcMemAccess&) = delete;

  const memory::IndirectIo& io() const { return io_; }
  /// Whether the byte at `address` can be read: 0, EFAULT, or ETIMEDOUT.
  int probe(std::uint64_t address);

 private:
  class AccessThread;
  int transfer(bool writes, std::uint64_t address, std::byte* data, std::size_t bytes);

  MemoryFiles files_;
  const std::atomic<bool>& few_cores_;
  std::shared_ptr<AccessThread> access_thread_;
  memory::IndirectIo io_;
};

}  // namespace uroce::mapping
