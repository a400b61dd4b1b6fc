// The sessions attached to a worker: their doorbells, and the words by which each side shows the other that it
// sleeps or yields (lib/abi/segment.h). On the worker's thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "abi/segment.h"
#include "base/types.h"
#include "proto/transport.h"
#include "queue/doorbell.h"

namespace uroce::worker {

/// One session as seen by one worker. Owned by the session; used by the worker from attach() to detach().
struct SessionPort {
  static constexpr std::uint32_t kNoQp = ~0u;

  /// The QP of a doorbell bit, or kNoQp.
  std::uint32_t qp_of(std::uint32_t bit) const { return bit < qp_of_bit.size() ? qp_of_bit[bit] : kNoQp; }

  std::uint64_t session = 0;
  queue::DoorbellReader bells;
  uroce_worker_line* line = nullptr;
  int eventfd = -1;                      ///< clients write to it after ringing when `line->sleeping` is set
  std::vector<std::uint32_t> qp_of_bit;  ///< QpIndex, or kNoQp
  std::uint32_t polls = 0;               ///< the clients' poll counter when it was last read
  Nanos polls_at = 0;                    ///< when that counter last changed
};

class SessionPorts {
 public:
  void attach(SessionPort& port);
  void detach(SessionPort& port) { std::erase(ports_, &port); }

  /// Calls `about(port)` before it reads the memory of a session, and `ring(bit's QP or kNoQp)` for every
  /// doorbell that was rung. True: there was one.
  template <class About, class Ring>
  bool drain(About&& about, Ring&& ring) {
    bool any = false;
    for (SessionPort* port : ports_) {
      about(*port);
      port->bells.drain([&](std::uint32_t bit) {
        any = true;
        ring(port->qp_of(bit));
      });
    }
    return any;
  }
  bool any_rung() const {
    return std::ranges::any_of(ports_, [](const SessionPort* port) { return port->bells.any(); });
  }

  /// Whether a client found its CQs empty within the last moments and yields its CPU between polls.
  bool clients_are_yielding(Nanos now);

  /// When the first client that woke the worker after `slept` did so; kNever: none has.
  Nanos first_wake(Nanos slept) const;

  /// The number that clients see while the worker sleeps; 0: it is awake. Each sleep has a number of its own, so
  /// that a client which rings repeatedly writes its eventfd once.
  void publish_sleep(std::uint32_t number);
  /// Whether clients are to say when they ring.
  void want_stamps(bool wanted);

 private:
  void publish();
  std::uint32_t line_ = 0;  // uroce_worker_line::sleeping
  std::vector<SessionPort*> ports_;
};

}  // namespace uroce::worker
