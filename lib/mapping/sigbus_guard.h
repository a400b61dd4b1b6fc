// Keeps a client from killing the daemon by truncating a file that the daemon has mapped: the SIGBUS handler maps
// zero pages over the fault and marks the session, which the control thread then closes.
//
// add() and remove() on any thread; the handler reads a fixed table without locks. A fault elsewhere is a bug and
// kills the daemon.
#pragma once

#include <cstddef>
#include <cstdint>

namespace uroce::daemon {

class SigbusGuard {
 public:
  static constexpr std::uint32_t kMaxRanges = 65536;

  static SigbusGuard& instance();

  /// Installs the handler (once).
  void install();

  /// Guards [base, base + bytes) for `session` (not 0). `page_bytes`: of the mapping, 4096 or a hugepage. False:
  /// the table is full.
  bool add(const void* base, std::size_t bytes, std::size_t page_bytes, std::uint64_t session);
  void remove(const void* base);

  /// A session that caused a fault since the last call; 0: none.
  std::uint64_t take_offender();

 private:
  SigbusGuard() = default;
};

}  // namespace uroce::daemon
