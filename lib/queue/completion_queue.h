// Completion queues in shared memory: a ring of 64-byte entries with a phase byte. The daemon produces; the client
// consumes and publishes its index, so that the daemon detects an overrun instead of overwriting entries.
//
// Edges: CqProducer::push (release on phase) pairs with CqConsumer::peek (acquire). Arming is a store-load
// (Dekker) pair: CqConsumer::arm stores the arm word, then a seq_cst fence, and the program polls once more;
// CqProducer::take_event has a seq_cst fence between the last push and its read of the arm word. So either
// the program sees the entry or the daemon sees that the CQ is armed. Both may: the one that reports the event
// takes the arm word first. The word also holds the index up to which the program had seen entries when it armed;
// these cause no event, however late the daemon reads the word.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "abi/queue_entries.h"
#include "base/spinlock.h"
#include "base/types.h"

namespace uroce::queue {

inline constexpr std::uint64_t kOwed = UROCE_CQ_ARM_OWED | UROCE_CQ_ARM_OWED_SOLICITED;

inline std::uint8_t cqe_phase(std::uint32_t index, std::uint32_t count) {
  return static_cast<std::uint8_t>(((index / count) + 1) & 1);
}

/// The daemon's end; a CQ that several workers share is locked (`shared`).
class CqProducer {
 public:
  CqProducer() = default;
  CqProducer(uroce_cqe* ring, std::uint32_t count, uroce_cq_client_block* client)
      : ring_(ring), count_(count), client_(client) {}

  /// Appends an entry (its phase byte is set here). False on overrun: nothing is written, and the CQ is in
  /// error from then on (IBTA vol. 1, 11.6.3.2 affiliated asynchronous error).
  bool push(const uroce_cqe& entry, bool solicited) {
    if (shared_) lock_.lock();
    const bool ok = push_locked(entry, solicited);
    if (shared_) lock_.unlock();
    return ok;
  }

  /// Whether a completion event is due now. Call after the pushes of one duty cycle; true at most once for
  /// each arming, and never after CqConsumer::take_event() took the event. Two that are due at once are one.
  bool take_event() {
    if (shared_) lock_.lock();
    const bool due = take_event_locked();
    if (shared_) lock_.unlock();
    return due;
  }

  /// Moves the entries that the client has not polled to `ring`, zeroed, of `count` entries, and continues there
  /// with the same indices. The client must not poll during the call, which runs on a worker that feeds the CQ.
  /// False: the waiting entries do not fit, nothing has changed.
  bool resize(uroce_cqe* ring, std::uint32_t count) {
    if (shared_) lock_.lock();
    const bool ok = resize_locked(ring, count);
    if (shared_) lock_.unlock();
    return ok;
  }

  bool in_error() const { return error_; }
  std::uint32_t count() const { return count_; }
  std::uint32_t produced() const {
    if (shared_) lock_.lock();
    const std::uint32_t head = head_;
    if (shared_) lock_.unlock();
    return head;
  }
  /// The client's published state, for diagnosis: entries polled so far; whether it waits for an event.
  std::uint32_t polled() const { return load(client_->consumer); }
  bool armed() const {
    const std::uint64_t arm = std::atomic_ref(client_->arm).load(std::memory_order_acquire);
    return arm != 0 && (arm & UROCE_CQ_ARM_TAKEN) == 0;
  }
  /// Call before a second worker can reach the CQ.
  void set_shared(bool shared) { shared_ = shared; }
  /// Call before the first push. Entries then have the time at which they are pushed: that of the worker's duty
  /// cycle may be before the post, and each worker has another one.
  void set_clock(Nanos (*clock)()) { clock_ = clock; }
  /// Call before the first push. An entry that overruns the CQ is then dropped, without an error.
  void set_ignore_overrun(bool ignore) { ignore_overrun_ = ignore; }

 private:
  static std::uint32_t load(const std::uint32_t& word) {
    return std::atomic_ref(const_cast<std::uint32_t&>(word)).load(std::memory_order_acquire);
  }

  bool take_event_locked() {
    if (!pushed_) return false;
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const bool solicited = std::exchange(pushed_solicited_, false);
    pushed_ = false;
    const std::atomic_ref word(client_->arm);
    // Fails when the client takes it, or arms anew.
    for (std::uint64_t arm = word.load(std::memory_order_acquire); arm != 0 && (arm & UROCE_CQ_ARM_TAKEN) == 0;) {
      const bool due = static_cast<std::int32_t>(head_ - static_cast<std::uint32_t>(arm >> 32)) > 0 &&
                       ((arm & UROCE_CQ_ARM_SOLICITED) == 0 || solicited);
      const bool owed = (arm & UROCE_CQ_ARM_OWED) != 0 || ((arm & UROCE_CQ_ARM_OWED_SOLICITED) != 0 && solicited);
      const std::uint64_t after = due ? arm | UROCE_CQ_ARM_TAKEN : arm & ~kOwed;
      if (after == arm) return false;
      if (word.compare_exchange_weak(arm, after, std::memory_order_acq_rel)) return due || owed;
    }
    return false;
  }

  bool resize_locked(uroce_cqe* ring, std::uint32_t count) {
    const std::uint32_t waiting = head_ - load(client_->consumer);
    if (waiting > count_ || waiting > count) return false;
    for (std::uint32_t i = head_ - waiting; i != head_; ++i) {
      uroce_cqe& slot = ring[i & (count - 1)];
      std::memcpy(&slot, &ring_[i & (count_ - 1)], offsetof(uroce_cqe, phase));
      slot.phase = cqe_phase(i, count);
    }
    // A phase of zero would look valid in every other lap.
    for (std::uint32_t i = head_; i != head_ - waiting + count; ++i) {
      ring[i & (count - 1)].phase = cqe_phase(i, count) ^ 1;
    }
    ring_ = ring;
    count_ = count;
    return true;
  }

  bool push_locked(const uroce_cqe& entry, bool solicited) {
    if (error_) return false;
    if (head_ - cached_consumer_ >= count_) {
      cached_consumer_ = load(client_->consumer);
      // A hostile consumer index can harm only its own CQ: it does not change which slot is written.
      if (head_ - cached_consumer_ >= count_) {
        if (ignore_overrun_) return true;
        error_ = true;
        return false;
      }
    }
    uroce_cqe& slot = ring_[head_ & (count_ - 1)];
    std::memcpy(&slot, &entry, offsetof(uroce_cqe, phase));
    if (clock_ != nullptr) slot.timestamp = clock_();
    std::atomic_ref(slot.phase).store(cqe_phase(head_, count_), std::memory_order_release);
    ++head_;
    pushed_ = true;
    // An unsuccessful completion counts as solicited (IBTA vol. 1, 11.4.2.2).
    pushed_solicited_ |= solicited || entry.status != UROCE_WC_SUCCESS;
    return true;
  }

  uroce_cqe* ring_ = nullptr;
  std::uint32_t count_ = 0;
  uroce_cq_client_block* client_ = nullptr;
  std::uint32_t head_ = 0;
  std::uint32_t cached_consumer_ = 0;
  Nanos (*clock_)() = nullptr;
  bool pushed_ = false;
  bool pushed_solicited_ = false;
  bool error_ = false;
  bool shared_ = false;
  bool ignore_overrun_ = false;
  mutable base::Spinlock lock_;
};

/// The client's end. Not thread-safe.
class CqConsumer {
 public:
  CqConsumer() = default;
  CqConsumer(const uroce_cqe* ring, std::uint32_t count, uroce_cq_client_block* client)
      : ring_(ring), count_(count), client_(client) {}

  /// The oldest entry, or nullptr when there is none. Valid until pop() and publish().
  const uroce_cqe* peek() const {
    const uroce_cqe& slot = ring_[tail_ & (count_ - 1)];
    const std::uint8_t phase =
        std::atomic_ref(const_cast<std::uint8_t&>(slot.phase)).load(std::memory_order_acquire);
    return phase == cqe_phase(tail_, count_) ? &slot : nullptr;
  }
  void pop() { ++tail_; }
  /// Entries popped so far, and with those that wait.
  std::uint32_t popped() const { return tail_; }
  std::uint32_t produced() const { return tail_ + ready(count_); }
  /// Gives the popped slots back to the daemon.
  void publish() { std::atomic_ref(client_->consumer).store(tail_, std::memory_order_release); }

  /// Continues on a ring of another size, with the same indices (CqProducer::resize).
  void move_to(const uroce_cqe* ring, std::uint32_t count) {
    ring_ = ring;
    count_ = count;
  }

  /// Requests an event for the next entry, or solicited entry. If no entry came since the last request, that one
  /// stays in force, and is not narrowed; if one did, and the daemon has not looked yet, the event of that request
  /// comes as well (IBTA vol. 1, 11.4.2.2).
  void arm(bool solicited_only) {
    const std::atomic_ref arm(client_->arm);
    const std::uint32_t seen = tail_ + ready(kMostSeen);
    std::uint64_t before = arm.load(std::memory_order_acquire), after = 0;
    do {
      after = in_force(before) ? add_request(before, seen, solicited_only) : word(seen, solicited_only);
    } while (!arm.compare_exchange_weak(before, after, std::memory_order_acq_rel, std::memory_order_acquire));
    arm_ = after & ~kOwed;
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const std::uint32_t found = ready(kMostSeen);
    found_all_ = found < kMostSeen;
    found_until_ = tail_ + found;
  }
  /// Whether the CQ is armed for any entry, and nobody has taken the event.
  bool armed_for_any() const { return (arm_ & UROCE_CQ_ARM_SOLICITED) == 0 && in_force(load()); }
  /// Whether entries may be left of those that arming found. The daemon reports all later ones, and in the order of
  /// those of other CQs.
  bool has_found_entries() const { return !found_all_ || static_cast<std::int32_t>(found_until_ - tail_) > 0; }
  /// Whether the CQ is armed and has entries that were there when it was armed.
  bool armed_with_pending() const { return arm_ != 0 && has_found_entries() && peek() != nullptr; }
  /// Takes the event that the CQ is armed for. False: it is not armed, or the daemon has reported or will report
  /// it.
  bool take_event() {
    const std::atomic_ref arm(client_->arm);
    for (std::uint64_t before = arm.load(std::memory_order_acquire); in_force(before);) {
      if (arm.compare_exchange_weak(before, before | UROCE_CQ_ARM_TAKEN, std::memory_order_acq_rel)) return true;
    }
    return false;
  }

 private:
  static constexpr std::uint32_t kSerials = 1u << 28;
  static constexpr std::uint32_t kMostSeen = 256;  // entries beyond these may also cause an event from the daemon

  std::uint64_t load() const { return std::atomic_ref(client_->arm).load(std::memory_order_acquire); }
  /// Whether `arm` is the last request, and nobody has taken its event.
  bool in_force(std::uint64_t arm) const { return arm_ != 0 && (arm & ~kOwed) == arm_; }
  std::uint64_t word(std::uint32_t index, bool solicited_only) {
    serial_ = serial_ + 1 == kSerials ? 1 : serial_ + 1;
    return std::uint64_t{index} << 32 | std::uint64_t{serial_} << 4 |
           (solicited_only ? std::uint32_t{UROCE_CQ_ARM_SOLICITED} : 0u);
  }
  /// The word for another request while one is in force.
  std::uint64_t add_request(std::uint64_t before, std::uint32_t seen, bool solicited_only) {
    const bool solicited_before = (before & UROCE_CQ_ARM_SOLICITED) != 0;
    if (static_cast<std::uint32_t>(before >> 32) == seen) {
      return solicited_before && !solicited_only ? word(seen, false) | (before & kOwed) : before;
    }
    return word(seen, solicited_only) | (before & kOwed) |
           (solicited_before ? UROCE_CQ_ARM_OWED_SOLICITED : UROCE_CQ_ARM_OWED);
  }

  /// Number of entries that wait, counted up to `most`.
  std::uint32_t ready(std::uint32_t most) const {
    CqConsumer ahead = *this;
    while (ahead.tail_ - tail_ < most && ahead.peek() != nullptr) ahead.pop();
    return ahead.tail_ - tail_;
  }

  const uroce_cqe* ring_ = nullptr;
  std::uint32_t count_ = 0;
  uroce_cq_client_block* client_ = nullptr;
  std::uint32_t tail_ = 0;
  std::uint32_t serial_ = 0;
  std::uint64_t arm_ = 0;          ///< as last written, without what is owed
  std::uint32_t found_until_ = 0;  ///< one past the entries that were there when `arm_` had been written,
  bool found_all_ = true;          ///< unless there were more than were counted
};

}  // namespace uroce::queue
