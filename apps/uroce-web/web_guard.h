// Limits of connections that the HTTP library does not have: a time for the whole request, and bytes of its head.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace uroce::ctl {

/// Looks at the TCP connections of this process. A connection that has not shown the token is ended 5 s after it
/// came, when it has sent 16 KiB, and when there are too many and it is the oldest. Calls may come from any thread.
class ConnectionGuard {
 public:
  using Clock = std::chrono::steady_clock;

  /// Whether there are connections: without one sweep() does nothing.
  void watch(bool any) { any_ = any; }
  /// The connection from this address and port has shown the token.
  void trust(const std::string& address, int port);
  /// Ends what is over its limits; to be called several times a second while there are connections.
  void sweep(Clock::time_point now = Clock::now());
  /// Ends the oldest connection without the token. False: there is none.
  bool end_oldest();

 private:
  struct Connection {
    Clock::time_point since;
    std::string peer;
    bool trusted = false, seen = true, ended = false;
  };
  /// Visits all connections; `end` says which of them end.
  template <typename End>
  void visit(Clock::time_point now, const End& end);

  std::atomic<bool> any_{false};
  std::mutex mutex_;
  std::map<ino_t, Connection>
      connections_;  // by the inodes of their sockets, as numbers of descriptors are used again
};

}  // namespace uroce::ctl
