// The background thread of all rsockets of a process: connection events, keepalives, and address exchange of
// datagram sockets.
#pragma once

#include <rdma/rdma_cma.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

namespace uroce::rdmacm {

class Stream;
class DatagramResolver;

/// One instance per process, created with the first socket and never destroyed, since sockets may be used until the
/// process ends. After a fork(2) the child creates a new one. Thread-safe.
class Service {
 public:
  /// Null with errno when it can't be started.
  static Service* get();

  /// The event channel of all streams. The context of an rdma_cm_id is its Stream, or null.
  rdma_event_channel* channel() const { return channel_; }

  /// When it returns, no event of `id` is being or will be delivered to its socket. Not to be called from an event
  /// handler.
  void forget(rdma_cm_id* id);
  /// Sends a keepalive every `seconds`; 0 stops that.
  void keep_alive(const std::shared_ptr<Stream>& stream, unsigned seconds);
  /// Calls resolver->receive() whenever `fd` is readable, until remove() has returned.
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
  std::mutex events_mutex_;  ///< held while an event is delivered
  std::mutex mutex_;         ///< guards all members that follow
  std::vector<Keepalive> keepalives_;
  std::vector<Udp> udp_;
  std::mutex udp_call_mutex_;  ///< held while a resolver runs
};

}  // namespace uroce::rdmacm
