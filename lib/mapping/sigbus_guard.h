// Keeps a client from killing the daemon by truncating a file that the daemon has mapped: the SIGBUS handler puts
// zero pages in the place of the missing ones. In registered memory, Loss says which: accesses there fail. A
// session whose queues lose pages is closed by the control thread.
//
// A hole in a file in memory is taken for a missing page as well. By itself the kernel would allocate one, charge
// it to the daemon's control group, and keep it for as long as the client keeps the file.
//
// add() and remove() on any thread; the handler reads a fixed table without locks. A fault elsewhere is a bug and
// kills the daemon.
#pragma once

#include <cstddef>
#include <cstdint>

#include "memory/table.h"

namespace uroce::mapping {

class SigbusGuard {
 public:
  static constexpr std::uint32_t kMaxRanges = 65536;

  static SigbusGuard& instance();

  /// Installs the handler, and opens what guards holes (once; before system calls are filtered).
  void install();

  /// Whether holes can be guarded: userfaultfd(2) for page faults in user mode, Linux 5.11 or a right.
  bool guards_holes() const;
  /// Guards the holes of [base, base + bytes): mappings of a file in memory, which may become writable. Until they
  /// are unmapped. False: the daemon allocates the pages that it uses.
  bool guard_holes(void* base, std::size_t bytes) const;

  /// Guards [base, base + bytes) for `session` (not 0): whole mappings. `loss`: of registered memory, else nullptr;
  /// it outlives the entry. False: the table is full.
  bool add(const void* base, std::size_t bytes, std::uint64_t session, memory::Loss* loss = nullptr);
  void remove(const void* base);

  /// Replaces all memory of the session by zero pages.
  void revoke(std::uint64_t session);

  /// A session whose queues have lost pages since the last call; 0: none.
  std::uint64_t take_offender();
  /// A session whose registered memory has.
  std::uint64_t take_loser();

 private:
  SigbusGuard() = default;
};

}  // namespace uroce::mapping
