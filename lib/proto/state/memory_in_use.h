// Whose memory a worker is using, for the thread that looks after workers that wait for it
// (control/diagnosis/stall_watch).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace uroce::proto {

/// As that thread sees it. It does not change while the worker waits.
struct BusyWith {
  std::uint64_t mark = 0;  ///< mark_of() the user of the memory; 0: none
  /// What a packet names and the worker copies, into memory of `mark`: pages of files in memory, which were present
  /// when the copy began. 0 bytes: nothing.
  std::uint64_t source = 0, source_bytes = 0;
  std::uint64_t lender = 0;  ///< mark of the memory that is copied; 0: of another device
};

class MemoryInUse {
 public:
  // The worker.
  void use(std::uint64_t mark) { store(mark_, mark); }
  void copy_from(const std::byte* source, std::size_t bytes, std::uint64_t lender) {
    store(lender_, lender);
    store(source_, reinterpret_cast<std::uintptr_t>(source));
    store(source_bytes_, bytes);
  }
  void end_copy() {
    store(source_bytes_, 0);
    store(lender_, 0);
  }

  /// Any thread.
  BusyWith look() const { return {load(mark_), load(source_), load(source_bytes_), load(lender_)}; }

 private:
  using Shared = std::atomic<std::uint64_t>;
  static void store(Shared& to, std::uint64_t value) { to.store(value, std::memory_order_relaxed); }
  static std::uint64_t load(const Shared& from) { return from.load(std::memory_order_relaxed); }

  Shared mark_{0}, source_{0}, source_bytes_{0}, lender_{0};
};

}  // namespace uroce::proto
