// Frames that one worker received for QPs of another: a ring of copies with one producer and one consumer. Copies,
// because a device's buffers belong to its worker.
//
// Edges: push (release on head_) pairs with front (acquire); pop (release on tail_) pairs with push (acquire).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

namespace uroce::daemon {

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

  explicit PacketRing(std::uint32_t frame_bytes)
      : frame_bytes_(frame_bytes), bytes_(std::make_unique<std::byte[]>(std::size_t{kSlots} * frame_bytes)) {}

  /// False: full, or the frame is longer than a slot; the frame is lost as on any full receive ring.
  bool push(std::span<const std::byte> frame, SteerReason reason = SteerReason::kVerified,
            std::uint32_t sender = 0) {
    const std::uint32_t head = head_.load(std::memory_order_relaxed);
    if (head - tail_.load(std::memory_order_acquire) >= kSlots || frame.size() > frame_bytes_) return false;
    std::memcpy(slot(head), frame.data(), frame.size());
    lengths_[head % kSlots] = static_cast<std::uint32_t>(frame.size());
    reasons_[head % kSlots] = reason;
    senders_[head % kSlots] = sender;
    head_.store(head + 1, std::memory_order_seq_cst);
    return true;
  }
  /// The oldest frame, valid until pop(); empty: there is none.
  std::span<const std::byte> front() const {
    const std::uint32_t tail = tail_.load(std::memory_order_relaxed);
    if (head_.load(std::memory_order_acquire) == tail) return {};
    return {slot(tail), lengths_[tail % kSlots]};
  }
  /// Why the oldest frame was steered here.
  SteerReason reason() const { return reasons_[tail_.load(std::memory_order_relaxed) % kSlots]; }
  /// base::Frame::sender of the oldest frame.
  std::uint32_t sender() const { return senders_[tail_.load(std::memory_order_relaxed) % kSlots]; }
  void pop() { tail_.store(tail_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
  bool empty() const { return head_.load(std::memory_order_seq_cst) == tail_.load(std::memory_order_relaxed); }

 private:
  std::byte* slot(std::uint32_t index) const { return bytes_.get() + std::size_t{index % kSlots} * frame_bytes_; }

  std::uint32_t frame_bytes_;
  std::unique_ptr<std::byte[]> bytes_;
  std::uint32_t lengths_[kSlots] = {};
  SteerReason reasons_[kSlots] = {};
  std::uint32_t senders_[kSlots] = {};
  alignas(64) std::atomic<std::uint32_t> head_{0};
  alignas(64) std::atomic<std::uint32_t> tail_{0};
};

}  // namespace uroce::daemon
