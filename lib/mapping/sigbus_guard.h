// Keeps a client from killing the daemon by truncating a file that the daemon has mapped: the SIGBUS handler
// replaces the whole range by zero pages and marks the session, which the control thread then closes.
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

  /// Guards [base, base + bytes) for `session` (not 0): whole mappings. False: the table is full.
  bool add(const void* base, std::size_t bytes, std::uint64_t session);
  void remove(const void* base);

  /// Replaces all memory of the session by zero pages.
  void revoke(std::uint64_t session);

  /// A session that caused a fault since the last call; 0: none.
  std::uint64_t take_offender();

 private:
  SigbusGuard() = default;
};

}  // namespace uroce::daemon
