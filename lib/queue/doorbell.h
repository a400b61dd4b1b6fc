// Doorbells: one bit a QP in a two-level bitmap per session and worker (abi/segment.h).
//
// Edges: Ringer::ring (fetch_or, seq_cst) pairs with Reader::drain (exchange, acquire): a reader that takes the
// bit sees the producer index that was published before the bit was set. Sleeping is a store-load pair: the worker
// stores `sleeping`, fences, and reads every summary word once more before it waits; the client sets its
// bits, then reads `sleeping`. Both are seq_cst, so one of them sees the other.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>

#include "abi/segment.h"

namespace uroce::queue {

/// The client's end; any number of threads.
class DoorbellRinger {
 public:
  DoorbellRinger() = default;
  DoorbellRinger(uroce_doorbells* bells, const uroce_worker_line* worker) : bells_(bells), worker_(worker) {}

  /// Rings for the QP with this bit. Returns uroce_worker_line::sleeping: if it is not 0, there is more to do.
  std::uint32_t ring(std::uint32_t bit) {
    const std::uint32_t leaf = bit / 64;
    std::atomic_ref(bells_->leaf[leaf]).fetch_or(std::uint64_t{1} << (bit % 64));
    std::atomic_ref(bells_->summary[leaf / 64]).fetch_or(std::uint64_t{1} << (leaf % 64));
    return std::atomic_ref(const_cast<std::uint32_t&>(worker_->sleeping)).load();
  }

 private:
  uroce_doorbells* bells_ = nullptr;
  const uroce_worker_line* worker_ = nullptr;
};

/// The worker's end.
class DoorbellReader {
 public:
  DoorbellReader() = default;
  explicit DoorbellReader(uroce_doorbells* bells) : bells_(bells) {}

  bool any() const {
    std::uint64_t all = 0;
    for (std::uint64_t& word : bells_->summary) all |= std::atomic_ref(word).load(std::memory_order_seq_cst);
    return all != 0;
  }

  /// What the client says.
  std::uint64_t rung_ns() const { return std::atomic_ref(bells_->rung_ns).load(std::memory_order_relaxed); }
  std::uint64_t woken_ns() const { return std::atomic_ref(bells_->woken_ns).load(std::memory_order_relaxed); }

  /// uroce_doorbells::polls: only a hint.
  std::uint32_t polls() const { return std::atomic_ref(bells_->polls).load(std::memory_order_relaxed); }

  /// Calls found(bit) for each QP that rang since the last call. A client can set any bit: the caller checks
  /// that a QP of that session has it.
  template <class Found>
  void drain(Found&& found) {
    for (std::uint32_t group = 0; group < UROCE_DOORBELL_GROUPS; ++group) {
      if (std::atomic_ref(bells_->summary[group]).load(std::memory_order_relaxed) == 0) continue;
      std::uint64_t words = std::atomic_ref(bells_->summary[group]).exchange(0, std::memory_order_acq_rel);
      for (; words != 0; words &= words - 1) {
        const std::uint32_t leaf = group * 64 + static_cast<std::uint32_t>(std::countr_zero(words));
        std::uint64_t bits = std::atomic_ref(bells_->leaf[leaf]).exchange(0, std::memory_order_acq_rel);
        for (; bits != 0; bits &= bits - 1) {
          found(leaf * 64 + static_cast<std::uint32_t>(std::countr_zero(bits)));
        }
      }
    }
  }

 private:
  uroce_doorbells* bells_ = nullptr;
};

}  // namespace uroce::queue
