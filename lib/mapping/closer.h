// Closes descriptors of one user's clients on a thread of its own: close(2) may wait as long as the client wants (a
// socket with SO_LINGER, a FUSE file, a Unix socket with such descriptors in flight).
//
// Descriptors are closed one after the other, so that a user blocks one thread and no other user's descriptors.
// What a user's clients hand over while the backlog is full costs them their session (Conductor::handle()).
//
// Call contract. Any thread; no function waits or throws.
#pragma once

#include <atomic>
#include <cstddef>
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
  /// Takes the oldest message, with its descriptors, out of a Unix socket that stays open until then. `*done`
  /// becomes true afterwards.
  void discard_message(int socket, std::shared_ptr<std::atomic<bool>> done) noexcept;
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
