// How a worker sleeps and is woken: an epoll set of its own eventfd, the sessions' eventfds and the device's wake
// descriptor.
//
// Edges: announce() stores sleeping_ and every session's `sleeping` word and then fences; the worker then looks for
// work once more (WorkerCore::work_waiting()). Others store their work and then load the flag. All are seq_cst, so
// either the worker sees the work or the other side sees that it must wake the worker.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/types.h"
#include "platform/unique_fd.h"
#include "worker/session_ports.h"

namespace uroce::worker {

class WorkerSleep {
 public:
  WorkerSleep();

  // Any thread.
  /// Wakes the worker if it has announced that it sleeps. Call it after the work has been stored.
  void wake();
  bool is_sleeping() const { return sleeping_.load(std::memory_order_seq_cst); }

  // The worker.
  /// Wakes and sleeps together with another worker of this thread: their descriptors are in one set from now on.
  /// Before anything is watched.
  void join(const WorkerSleep& other);
  /// Wakes on the device's descriptor, too; it stays readable until Device::disarm_wake(). -1: none.
  void watch_device(int wake_fd);
  /// Wakes on a session's eventfd. Nobody reads it: each write wakes once (EPOLLET, epoll(7)).
  void watch(int eventfd);
  void unwatch(int eventfd);

  void announce(SessionPorts& sessions);
  /// Returns when woken or after `limit`.
  void wait(Nanos limit);
  void end(SessionPorts& sessions);

 private:
  void end_error(int fd);

  UniqueFd epoll_, wake_fd_;
  std::atomic<bool> sleeping_{false};
  std::uint32_t number_ = 0;  // of the last sleep
};

}  // namespace uroce::worker
