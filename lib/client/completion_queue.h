// The client side of a completion queue. Any thread may poll and arm it.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/spinlock.h"
#include "client/empty_polls.h"
#include "client/queue_pair.h"
#include "client/session.h"
#include "queue/completion_queue.h"

namespace uroce::client {

class CompletionQueue {
 public:
  /// errno: the daemon's answer to CREATE_CQ.
  static int create(Session& session, const uroce_create_cq_request& request, CompletionQueue& out);
  int destroy() { return session_->release(UROCE_CMD_DESTROY_CQ, made_.handle); }

  /// Asks for a ring of at least `entries`; unpolled entries move to the new ring. errno: the daemon's answer to
  /// RESIZE_CQ. Must not be called between front() and pop().
  int resize(std::uint32_t entries);

  Session& session() const { return *session_; }
  const uroce_create_cq_response& made() const { return made_; }

  /// Passes up to `most` entries, oldest first, to take(const uroce_cqe&). Returns their number; -1 in a forked
  /// child. When the daemon is gone, the outstanding work requests of the attached QPs complete with a flush error.
  template <class Take>
  int poll(int most, Take&& take) {
    if (session_->connection_state() == ConnectionState::kForked) return -1;
    int got = 0;
    {
      const std::lock_guard lock(lock_);
      while (got < most) {
        const uroce_cqe* const entry = next();
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
      empty_polls_.count();
    }
    on_empty_poll();
    return 0;
  }
  /// One entry at a time, for extended CQs (ibv_create_cq_ex(3)): front(), any number of reads, pop(). The caller
  /// holds `lock()` throughout.
  base::OptionalSpinlock& lock() { return lock_; }
  const uroce_cqe* front();
  void pop();
  void publish() {
    consumer_.publish();
    empty_polls_.end(*session_);
  }
  void on_empty_poll() { empty_polls_.pause(*session_); }

  /// Requests an event for the next (solicited) entry. Entries that are already in the queue cause no event. True:
  /// the CQ is armed for any entry and had entries when it was armed.
  bool arm(bool solicited_only) {
    const std::lock_guard lock(lock_);
    consumer_.arm(solicited_only);
    return pending_when_armed();
  }
  /// Whether the CQ is armed for any entry and still holds entries that were there when it was armed.
  bool armed_with_pending() {
    const std::lock_guard lock(lock_);
    return pending_when_armed();
  }
  /// True: armed_with_pending(), and the caller must deliver the event, for the daemon sends none for this arming.
  bool take_event() {
    const std::lock_guard lock(lock_);
    return pending_when_armed() && consumer_.take_event();
  }

  /// Registers a QP (and its SRQ) whose work requests complete here, for next_flushed(). The receives of an SRQ are
  /// flushed once, by the first CQ that polls.
  void attach(QueuePair* qp, bool sends, bool receives);
  void detach(QueuePair* qp);
  /// Removes the entries of a QP that has just been reset.
  void purge(std::uint32_t qpn);
  /// When the daemon is gone: whether a poll would return an entry.
  bool has_flushed();

 private:
  bool pending_when_armed() {
    return consumer_.armed_for_any() && consumer_.has_found_entries() && next() != nullptr;
  }
  /// The oldest entry that is not purged. With lock_ held.
  const uroce_cqe* next() {
    const uroce_cqe* const entry = consumer_.peek();
    return has_purged_ ? skip_purged(entry) : entry;
  }
  const uroce_cqe* skip_purged(const uroce_cqe* entry);
  struct User {
    QueuePair* qp;
    bool sends, receives;
  };
  bool next_flushed(uroce_cqe& out);

  Session* session_ = nullptr;
  queue::CqConsumer consumer_;
  base::OptionalSpinlock lock_;
  EmptyPolls empty_polls_;        ///< counted with lock_ held
  bool flushed_waiting_ = false;  ///< front() returned flushed_, and pop() was not called yet
  uroce_cqe flushed_{};
  std::vector<User> users_;
  /// Entries of a QP before an index.
  struct Purged {
    std::uint32_t qpn, end;
  };
  std::vector<Purged> purged_;
  bool has_purged_ = false;  ///< purged_ is not empty
  uroce_create_cq_response made_{};
};

}  // namespace uroce::client
