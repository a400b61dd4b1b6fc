// Records of any length from one producer to one consumer. The producer writes records first and publishes them
// later, so that it can discard the records of frames that the device did not take.
//
// Edges: publish() (release on head_) pairs with front() (acquire); pop() (release on tail_) pairs with reserve()
// (acquire).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace uroce::pcap {

class ByteRing {
 public:
  static constexpr std::uint64_t kBytes = std::uint64_t{8} << 20;

  ByteRing() : bytes_(std::make_unique_for_overwrite<std::byte[]>(kBytes)) {}

  /// Producer: contiguous room for a record at position `at` (head(), or as the last reserve() left it); `at` moves
  /// past the record. Empty: the ring is full.
  std::span<std::byte> reserve(std::uint64_t& at, std::size_t bytes) {
    const std::uint64_t whole = kHeader + (bytes + 7) / 8 * 8;
    const std::uint64_t to_end = kBytes - at % kBytes;
    const std::uint64_t skip = to_end < whole ? to_end : 0;  // records never wrap
    if (at + skip + whole - tail_.load(std::memory_order_acquire) > kBytes) return {};
    if (skip != 0) *length_at(at) = kSkip;
    at += skip;
    *length_at(at) = bytes;
    std::byte* data = &bytes_[at % kBytes + kHeader];
    at += whole;
    return {data, bytes};
  }
  std::uint64_t head() const { return head_.load(std::memory_order_relaxed); }
  void publish(std::uint64_t at) { head_.store(at, std::memory_order_release); }

  /// Consumer: the oldest record; empty: none.
  std::span<const std::byte> front() {
    const std::uint64_t head = head_.load(std::memory_order_acquire);
    std::uint64_t tail = tail_.load(std::memory_order_relaxed);
    if (tail == head) return {};
    if (*length_at(tail) == kSkip) {
      tail += kBytes - tail % kBytes;
      tail_.store(tail, std::memory_order_release);
      if (tail == head) return {};
    }
    return {&bytes_[tail % kBytes + kHeader], static_cast<std::size_t>(*length_at(tail))};
  }
  void pop() {
    const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
    tail_.store(tail + kHeader + (*length_at(tail) + 7) / 8 * 8, std::memory_order_release);
  }

 private:
  static constexpr std::uint64_t kHeader = 8, kSkip = ~std::uint64_t{0};

  std::uint64_t* length_at(std::uint64_t at) { return reinterpret_cast<std::uint64_t*>(&bytes_[at % kBytes]); }

  std::unique_ptr<std::byte[]> bytes_;
  alignas(64) std::atomic<std::uint64_t> head_{0};
  alignas(64) std::atomic<std::uint64_t> tail_{0};
};

}  // namespace uroce::pcap
