// Keeps a client from killing the daemon by truncating a file that the daemon has mapped: the SIGBUS handler puts
// zero pages in the place of the missing ones. In registered memory, Loss says which: accesses there fail. A
// session whose queues lose pages is closed by the control thread.
//
// add() and remove() on any thread; the handler reads a fixed table without locks. A fault elsewhere is a bug and
// kills the daemon.
#pragma once

#include <cstddef>
#include <cstdint>

#include "memory/table.h"

namespace uroce::daemon {

class SigbusGuard {
 public:
  static constexpr std::uint32_t kMaxRanges = 65536;

  static SigbusGuard& instance();

  /// Installs the handler (once).
  void install();

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

}  // namespace uroce::daemon
