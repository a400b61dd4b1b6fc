// Send and receive queues in shared memory: one ring of fixed-stride entries, one producer (the client,
// under its own lock) and one consumer (the worker that owns the QP).
//
// Edges: Producer::publish (release on the producer index) pairs with Consumer::available (acquire);
// Consumer::publish_consumed (release on the consumer index) pairs with Producer::free_entries (acquire).
#pragma once

#include <atomic>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "abi/operations.h"
#include "abi/queue_entries.h"

namespace uroce::queue {

/// Geometry of a ring, fixed when the queue is created. Each side keeps its own copy.
struct RingShape {
  std::byte* entries = nullptr;
  std::uint32_t count = 0;   ///< a power of two
  std::uint32_t stride = 0;  ///< bytes

  std::byte* at(std::uint32_t index) const { return entries + std::size_t{index & (count - 1)} * stride; }
};

/// The list of a send queue entry (SGEs or inline data), once the opcode is written.
inline std::byte* send_list(uroce_sq_entry& entry) {
  return reinterpret_cast<std::byte*>(&entry) + abi::operation_of(entry.opcode).list_at;
}
inline const std::byte* send_list(const uroce_sq_entry& entry) {
  return reinterpret_cast<const std::byte*>(&entry) + abi::operation_of(entry.opcode).list_at;
}
/// Writes an entry with its list, of `bytes`.
inline void write_send(std::byte* slot, const uroce_sq_entry& entry, const void* list, std::size_t bytes) {
  std::memcpy(slot, &entry, sizeof(entry));
  if (bytes != 0) std::memcpy(slot + abi::operation_of(entry.opcode).list_at, list, bytes);
}

/// The client's end. Not thread-safe.
class WorkProducer {
 public:
  WorkProducer() = default;
  /// `next`: index of the entry to write first, as for WorkConsumer.
  WorkProducer(RingShape ring, std::uint32_t* producer, const std::uint32_t* consumer, std::uint32_t next = 0)
      : ring_(ring), producer_(producer), consumer_(consumer), head_(next), cached_consumer_(next) {}

  /// Slot for the next entry, or nullptr when the ring is full. Call advance() to keep it.
  std::byte* next() {
    if (head_ - cached_consumer_ >= ring_.count) {
      cached_consumer_ = std::atomic_ref(*const_cast<std::uint32_t*>(consumer_)).load(std::memory_order_acquire);
      if (head_ - cached_consumer_ >= ring_.count) return nullptr;
    }
    return ring_.at(head_);
  }
  void advance() { ++head_; }
  /// Drops the entries advanced since the last publish (ibv_wr_abort(3)).
  void rewind() { head_ = *producer_; }
  /// Publishes all entries advanced so far.
  void publish() { std::atomic_ref(*producer_).store(head_, std::memory_order_release); }

  std::uint32_t head() const { return head_; }
  std::uint32_t consumer() const {
    return std::atomic_ref(*const_cast<std::uint32_t*>(consumer_)).load(std::memory_order_acquire);
  }
  const RingShape& ring() const { return ring_; }
  /// Continues on a ring of another size, with the same indices (SRQ resize).
  void move_to(RingShape ring) { ring_ = ring; }
  /// QP reset: both sides start again at index zero.
  void reset() {
    head_ = cached_consumer_ = 0;
    std::atomic_ref(*producer_).store(0, std::memory_order_release);
  }

 private:
  RingShape ring_;
  std::uint32_t* producer_ = nullptr;
  const std::uint32_t* consumer_ = nullptr;
  std::uint32_t head_ = 0;
  std::uint32_t cached_consumer_ = 0;
};

/// The daemon's end. The client may write anything at any time into the ring and the producer index: an entry
/// is copied out exactly once, and a producer index more than `count` ahead counts as `count` ahead.
class WorkConsumer {
 public:
  WorkConsumer() = default;
  /// `next`: index of the entry to copy first, not 0 when it continues a running queue.
  WorkConsumer(RingShape ring, const std::uint32_t* producer, std::uint32_t* consumer, std::uint32_t next = 0)
      : ring_(ring), producer_(producer), consumer_(consumer), next_(next) {}

  /// Entries published and not yet copied out; at most count.
  std::uint32_t available() const {
    const std::uint32_t n =
        std::atomic_ref(*const_cast<std::uint32_t*>(producer_)).load(std::memory_order_acquire) - next_;
    return n <= ring_.count ? n : ring_.count;
  }
  /// Copies the next entry's first `bytes` (at most the stride) to `to`, and moves on.
  void copy_next(void* to, std::size_t bytes) {
    assert(bytes <= ring_.stride);
    std::memcpy(to, ring_.at(next_), bytes);
    ++next_;
  }
  /// Publishes that the client may overwrite entries before `index`.
  void publish_consumed(std::uint32_t index) {
    std::atomic_ref(*consumer_).store(index, std::memory_order_release);
  }
  /// Index of the entry that copy_next copies next.
  std::uint32_t next_index() const { return next_; }
  /// Of the entry that copy_next copies after `ahead` others.
  const std::byte* peek_address(std::uint32_t ahead = 0) const { return ring_.at(next_ + ahead); }
  const void* producer_address() const { return producer_; }
  std::uint32_t stride() const { return ring_.stride; }
  std::uint32_t count() const { return ring_.count; }
  /// Continues on `other`'s ring: entries that are published and not copied out yet are copied there, each to its
  /// index. False, with nothing done: that ring has too few entries.
  bool move_to(const WorkConsumer& other) {
    const std::uint32_t posted = available();
    if (posted > other.ring_.count) return false;
    const std::size_t bytes = ring_.stride < other.ring_.stride ? ring_.stride : other.ring_.stride;
    for (std::uint32_t i = next_; i != next_ + posted; ++i) std::memcpy(other.ring_.at(i), ring_.at(i), bytes);
    const std::uint32_t next = next_;
    *this = other;
    next_ = next;
    publish_consumed(next);
    return true;
  }
  void reset() {
    next_ = 0;
    publish_consumed(0);
  }

 private:
  RingShape ring_;
  const std::uint32_t* producer_ = nullptr;
  std::uint32_t* consumer_ = nullptr;
  std::uint32_t next_ = 0;
};

}  // namespace uroce::queue
