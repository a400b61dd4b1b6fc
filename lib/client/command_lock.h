// Serializes the commands of one session: those of this process, and of the children that it forked, which share
// its socket.
//
// A process may end while it holds the lock. The answer to its command then waits in the socket, or will: the next
// holder recognizes it by its sequence number, and drops it (is_orphan).
#pragma once

#include <pthread.h>

#include <cstdint>

namespace uroce::client {

class CommandLock {
 public:
  /// Throws std::bad_alloc.
  CommandLock();
  ~CommandLock();
  CommandLock(const CommandLock&) = delete;
  CommandLock& operator=(const CommandLock&) = delete;

  void lock();
  void unlock() { pthread_mutex_unlock(&shared_->mutex); }

  // By the holder.
  std::uint32_t next_sequence() { return ++shared_->sequence; }
  /// Whether the answer with this number is to a command of a process that has ended. `current`: of the holder.
  bool is_orphan(std::uint32_t sequence, std::uint32_t current) const {
    return shared_->abandoned && static_cast<std::int32_t>(sequence - current) < 0;
  }

 private:
  struct Shared {
    pthread_mutex_t mutex;
    std::uint32_t sequence;
    bool abandoned;  ///< a holder has ended
  };
  Shared* shared_;  ///< a page that children inherit
};

}  // namespace uroce::client
