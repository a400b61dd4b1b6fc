// Frames for another thread: those that one worker received for QPs of another, and those of the kernel's
// interface. A ring of copies, because a device's buffers belong to its worker, with one producer and one consumer.
//
// Edges: commit (head_) pairs with front and peek (acquire); pop (release on tail_) pairs with reserve (acquire).
// head_ is seq_cst, as is pop on request, for a side that then looks whether the other one sleeps.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

namespace uroce::worker {

/// Why a frame goes to another worker.
enum class SteerReason : std::uint8_t {
  kVerified,     ///< a packet for a QP, parsed, counted and its ICRC checked
  kIcrcPending,  ///< a packet for a QP, parsed except for its ICRC, not counted
  kNotRoce,      ///< for the link stack, and for flows
  kToFlows,      ///< flows only: damaged, or not for us
  kToSniffers    ///< a copy
};

class PacketRing {
 public:
  static constexpr std::uint32_t kSlots = 256;

  /// `slots`: a power of two.
  explicit PacketRing(std::uint32_t frame_bytes, std::uint32_t slots = kSlots)
      : frame_bytes_(frame_bytes),
        slots_(slots),
        frames_(slots),
        bytes_(std::make_unique_for_overwrite<std::byte[]>(std::size_t{slots} * frame_bytes)) {}

  std::uint32_t slots() const { return slots_; }

  /// False: full, or the frame is longer than a slot; the frame is lost as on any full receive ring.
  bool push(std::span<const std::byte> frame, SteerReason reason = SteerReason::kVerified,
            std::uint32_t sender = 0) {
    const std::span<std::byte> room = reserve(frame.size());
    if (room.empty()) return false;
    std::memcpy(room.data(), frame.data(), frame.size());
    commit(frame.size(), reason, sender);
    return true;
  }
  /// Where a frame of this length is to be written before commit(); empty: push() would fail.
  std::span<std::byte> reserve(std::size_t bytes) {
    const std::uint32_t head = head_.load(std::memory_order_relaxed);
    if (head - tail_.load(std::memory_order_acquire) >= slots_ || bytes > frame_bytes_) return {};
    return {slot(head), bytes};
  }
  void commit(std::size_t bytes, SteerReason reason = SteerReason::kVerified, std::uint32_t sender = 0) {
    const std::uint32_t head = head_.load(std::memory_order_relaxed);
    frames_[head % slots_] = {static_cast<std::uint32_t>(bytes), sender, reason};
    head_.store(head + 1, std::memory_order_seq_cst);
  }
  /// The oldest frame, valid until pop(); empty: there is none.
  std::span<const std::byte> front() const {
    const std::uint32_t tail = tail_.load(std::memory_order_relaxed);
    if (head_.load(std::memory_order_acquire) == tail) return {};
    return {slot(tail), of(tail).bytes};
  }
  /// The one after `later` others; empty: there is none.
  std::span<const std::byte> peek(std::uint32_t later) const {
    const std::uint32_t at = tail_.load(std::memory_order_relaxed) + later;
    if (static_cast<std::int32_t>(head_.load(std::memory_order_acquire) - at) <= 0) return {};
    return {slot(at), of(at).bytes};
  }
  /// Why the oldest frame was steered here.
  SteerReason reason() const { return of(tail_.load(std::memory_order_relaxed)).reason; }
  /// base::Frame::sender of the oldest frame.
  std::uint32_t sender() const { return of(tail_.load(std::memory_order_relaxed)).sender; }
  /// seq_cst: the consumer then looks whether the producer waits for room.
  void pop(std::memory_order order = std::memory_order_release) {
    tail_.store(tail_.load(std::memory_order_relaxed) + 1, order);
  }
  /// Frames in the ring, as the consumer or the producer sees it.
  std::uint32_t size() const {
    return head_.load(std::memory_order_seq_cst) - tail_.load(std::memory_order_seq_cst);
  }
  bool empty() const { return head_.load(std::memory_order_seq_cst) == tail_.load(std::memory_order_relaxed); }

 private:
  struct Stored {
    std::uint32_t bytes = 0, sender = 0;
    SteerReason reason = SteerReason::kVerified;
  };

  std::byte* slot(std::uint32_t index) const { return bytes_.get() + std::size_t{index % slots_} * frame_bytes_; }
  const Stored& of(std::uint32_t index) const { return frames_[index % slots_]; }

  const std::uint32_t frame_bytes_, slots_;
  std::vector<Stored> frames_;
  std::unique_ptr<std::byte[]> bytes_;
  alignas(64) std::atomic<std::uint32_t> head_{0};
  alignas(64) std::atomic<std::uint32_t> tail_{0};
};

}  // namespace uroce::worker
