// Closes descriptors of one user's clients on a thread of its own: close(2) may wait as long as the client wants (a
// socket with SO_LINGER, a FUSE file, a Unix socket with such descriptors in flight).
//
// Descriptors are closed one after the other, so that a user blocks one thread and no other user's descriptors.
// While the backlog is full, a client that sends a descriptor loses its session (Conductor::handle()).
//
// Call contract. Any thread; no function waits or throws.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "platform/unique_fd.h"

namespace uroce::daemon {

class Closer {
 public:
  static constexpr std::size_t kFull = 256;  ///< descriptors

  Closer();
  ~Closer();
  Closer(const Closer&) = delete;
  Closer& operator=(const Closer&) = delete;

  void close(std::vector<UniqueFd> files) noexcept;
  void close(UniqueFd file) noexcept;
  /// Takes the oldest message, with its descriptors, out of a Unix socket that stays open until then. Then calls
  /// `done` on the closer's thread.
  void discard_message(int socket, std::function<void()> done) noexcept;
  /// Starts the thread if it could not be started before.
  void retry() noexcept;

  /// Descriptors that are not closed yet.
  std::size_t backlog() const noexcept;
  bool is_full() const noexcept { return backlog() >= kFull; }

 private:
  struct Work;
  std::shared_ptr<Work> work_;
};

}  // namespace uroce::daemon
