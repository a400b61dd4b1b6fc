// The client's end of a CQ. Any thread polls and arms.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/spinlock.h"
#include "client/queue_pair.h"
#include "client/session.h"
#include "queue/completion_queue.h"

namespace uroce::client {

class CompletionQueue {
 public:
  /// errno: what the daemon says to CREATE_CQ.
  static int create(Session& session, const uroce_create_cq_request& request, CompletionQueue& out);
  int destroy() { return session_->release(UROCE_CMD_DESTROY_CQ, made_.handle); }

  /// Asks for a ring of at least `entries`; what waits in the old one moves. errno: what the daemon says to
  /// RESIZE_CQ. Not between front() and pop().
  int resize(std::uint32_t entries);

  Session& session() const { return *session_; }
  const uroce_create_cq_response& made() const { return made_; }

  /// Hands up to `most` entries, oldest first, to take(const uroce_cqe&). Returns how many; -1 in a forked child.
  /// With the daemon gone, what its QPs have outstanding comes as flushed.
  template <class Take>
  int poll(int most, Take&& take) {
    if (session_->connection_state() == ConnectionState::kForked) return -1;
    int got = 0;
    {
      const std::lock_guard lock(lock_);
      while (got < most) {
        const uroce_cqe* const entry = consumer_.peek();
        if (entry == nullptr) break;
        take(*entry);
        consumer_.pop();
        ++got;
      }
      if (got != 0) {
        publish();
        return got;
      }
      if (session_->lost()) [[unlikely]] {
        uroce_cqe flushed;
        while (got < most && next_flushed(flushed)) {
          take(flushed);
          ++got;
        }
        return got;
      }
      count_empty_poll();
    }
    on_empty_poll();
    return 0;
  }
  /// One entry at a time, for extended CQs: front(), any number of reads, pop(). The caller holds `lock()`
  /// throughout.
  base::OptionalSpinlock& lock() { return lock_; }
  const uroce_cqe* front();
  void pop();
  void publish() {
    consumer_.publish();
    empty_polls_.store(0, std::memory_order_relaxed);
    if (!waiting_.load(std::memory_order_relaxed)) return;
    waiting_.store(false, std::memory_order_relaxed);
    session_->publish_yielding(false);
  }
  void on_empty_poll();

  /// Asks for an event with the next (solicited) entry. Entries that are there already cause none. A request for
  /// any entry stands until its event comes, whatever is asked for meanwhile (IBTA vol. 1, 11.4.2.2).
  /// True: it was armed for any entry while some waited here.
  bool arm(bool solicited_only) {
    const std::lock_guard lock(lock_);
    armed_for_any_ |= !solicited_only;
    consumer_.arm(!armed_for_any_);
    return over_entries();
  }
  /// The same, now.
  bool armed_with_pending() {
    const std::lock_guard lock(lock_);
    return over_entries();
  }
  /// The same, and that event is the caller's to show: the daemon shows none for this arming.
  bool take_event() {
    const std::lock_guard lock(lock_);
    return over_entries() && consumer_.take_event();
  }
  void on_event() {
    const std::lock_guard lock(lock_);
    armed_for_any_ = false;
  }

  /// QPs and SRQs that complete here, for next_flushed(). An SRQ's receives are flushed once, by whichever CQ asks
  /// first.
  void attach(QueuePair* qp, bool sends, bool receives);
  void detach(QueuePair* qp);
  /// With the daemon gone: whether a poll would find something.
  bool has_flushed();

 private:
  bool over_entries() const { return armed_for_any_ && consumer_.armed_with_pending(); }
  void count_empty_poll() {
    empty_polls_.store(empty_polls_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  struct User {
    QueuePair* qp;
    bool sends, receives;
  };
  bool next_flushed(uroce_cqe& out);

  Session* session_ = nullptr;
  queue::CqConsumer consumer_;
  base::OptionalSpinlock lock_;
  std::atomic<std::uint32_t> empty_polls_{0};  ///< written with lock_ held
  std::atomic<bool> waiting_{false};           ///< the workers were told so
  bool armed_for_any_ = false;
  bool flushed_waiting_ = false;  ///< flushed_ was shown by front() and not popped
  uroce_cqe flushed_{};
  std::vector<User> users_;
  uroce_create_cq_response made_{};
};

}  // namespace uroce::client
