// Closes descriptors of one user's clients on threads of its own: close(2) may wait as long as the client wants (a
// socket with SO_LINGER, a FUSE file, a Unix socket with such descriptors in flight).
//
// What came from clients is closed one after the other, so that a user blocks one thread and no other user's
// descriptors. Sockets of the daemon in which no message waits have a second thread: they never stand behind the
// others. What is not closed yet counts as the user's (Users::count_closing()). While the backlog of the
// first thread is full, a client that sends a descriptor loses its session, and the user gets no other one.
//
// Call contract. Any thread; no function waits or throws.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "platform/unique_fd.h"

namespace uroce::mapping {

class Closer {
 public:
  static constexpr std::size_t kFull = 256;  ///< descriptors that came from clients

  Closer();
  ~Closer();
  Closer(const Closer&) = delete;
  Closer& operator=(const Closer&) = delete;

  void close(std::vector<UniqueFd> files) noexcept;
  void close(UniqueFd file) noexcept;
  /// A memfd of the daemon's that clients may have, too: it loses its pages first.
  void close_empty(UniqueFd file) noexcept;
  /// A Unix socket that the daemon made or accepted; the client at its other end sees the end at once.
  void close_socket(UniqueFd socket) noexcept;
  /// Whether a message waits in a Unix socket, which may hold descriptors. Shuts it down, so that none arrives.
  static bool holds_messages(int socket) noexcept;
  /// Takes the oldest message, with its descriptors, out of a Unix socket that stays open until then. Then calls
  /// `done` on the closer's thread.
  void discard_message(int socket, std::function<void()> done) noexcept;
  /// Starts the threads if they could not be started before.
  void retry() noexcept;

  /// Descriptors that are not closed yet.
  std::size_t backlog() const noexcept;
  bool is_full() const noexcept;

 private:
  struct Work;
  std::shared_ptr<Work> foreign_, own_;
};

}  // namespace uroce::mapping
