// The thread that works for all rsockets of a process: connection events, keepalives, and what datagram sockets
// learn of their peers.
#pragma once

#include <rdma/rdma_cma.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

namespace uroce::rdmacm {

class Stream;
class DatagramResolver;

/// One for each process, made with the first socket and never ended: sockets may be used while the process ends.
/// After a fork the child gets a new one. Thread-safe.
class Service {
 public:
  /// Null, with errno, when there can be none.
  static Service* get();

  /// The channel of every stream's rdma_cm_id. The id's context is its Stream, or null.
  rdma_event_channel* channel() const { return channel_; }

  /// No event of `id` is told to its socket from now on, nor is one being told. Not from within an event.
  void forget(rdma_cm_id* id);
  /// Sends a keepalive each `seconds`; 0: no more.
  void keep_alive(const std::shared_ptr<Stream>& stream, unsigned seconds);
  /// Has resolver->receive() called when `fd` is readable; until remove() has returned.
  void add(int fd, std::shared_ptr<DatagramResolver> resolver);
  void remove(int fd);

 private:
  using Clock = std::chrono::steady_clock;
  struct Keepalive {
    std::weak_ptr<Stream> stream;
    std::chrono::seconds interval;
    Clock::time_point next;
  };
  struct Udp {
    int fd;
    std::shared_ptr<DatagramResolver> resolver;
  };

  Service() = default;
  bool start();
  void run();
  bool handle_events();
  int send_keepalives();
  void wake();

  rdma_event_channel* channel_ = nullptr;
  int wake_fd_ = -1;
  std::mutex events_mutex_;  ///< held while an event is told
  std::mutex mutex_;         ///< guards what follows
  std::vector<Keepalive> keepalives_;
  std::vector<Udp> udp_;
  std::mutex udp_call_mutex_;  ///< held while a resolver works
};

}  // namespace uroce::rdmacm
