// Completion events (IBTA vol. 1, 11.4.2.2): which CQs of this worker owe one to
// their completion channel, and when it is written. Moderation (ibv_modify_cq(3)) holds an event until the CQ has
// got a number of entries or a period has passed.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"
#include "queue/completion_queue.h"
#include "worker/counters.h"

namespace uroce::worker {

/// A CQ with its completion channel. The conductor creates it and workers push to it; it stays at its address until
/// remove_cq() has run on every worker.
struct Cq : queue::CqProducer {
  using CqProducer::CqProducer;

  /// An event is held until `count` entries have been made, or for `period`. 0 and 0: no moderation.
  void moderate(std::uint32_t count, Nanos period) {
    event_period.store(period, std::memory_order_relaxed);
    event_count.store(count, std::memory_order_relaxed);
  }
  bool moderated() const {
    return event_count.load(std::memory_order_relaxed) > 1 || event_period.load(std::memory_order_relaxed) != 0;
  }

  std::atomic<std::uint32_t> event_count{0};
  std::atomic<Nanos> event_period{0};
  std::atomic<std::uint32_t> event_at{0};  ///< entries made when the last event was due
  std::atomic<bool> event_held{false};     ///< one of the workers holds the event for moderation
  int channel_fd = -1;                     ///< the daemon's end of the completion channel; -1: none
  std::uint64_t cookie = 0;                ///< the record that is sent on the channel
  std::atomic<bool> event_owed{false};     ///< the channel was full
};

class CompletionEvents {
 public:
  CompletionEvents(std::uint32_t max_cqs, WorkerCounters& counters);

  void set_cq(CqId id, Cq* cq);
  void remove_cq(CqId id, Cq* cq);

  /// Writes the events that are due: of the CQs that got entries in this duty cycle (`touched`), of those whose
  /// moderation ends, and of those whose channel was full before.
  void send(std::span<const CqId> touched, Nanos now);
  /// When the first held event is due, or the next attempt to send those that a full channel refused; kNever: there
  /// are none.
  Nanos next_timeout() const;

 private:
  struct Held {
    Cq* cq;
    Nanos until;
  };

  bool write_event(Cq& cq);
  void send_event(Cq& cq, Nanos now);
  void release_held(Nanos now);
  void retry_owed(Nanos now);

  WorkerCounters& counters_;
  std::vector<Cq*> cqs_;  // by CqId
  std::vector<Held> held_;
  std::vector<Cq*> owed_;
  std::size_t next_owed_ = 0;  // retries continue here, so that each channel gets its turn
  Nanos retry_at_ = 0;
};

}  // namespace uroce::worker
