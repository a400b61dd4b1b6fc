// Blocks of one size whose pages are allocated at first use: a QP's responder resources take 8 KiB, and most QPs
// use none of it. Used by the control thread only.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace uroce::mapping {

class BlockPool {
 public:
  /// A multiple of the page size.
  explicit BlockPool(std::size_t slot_bytes) : slot_bytes_(slot_bytes) {}
  ~BlockPool() {
    for (std::byte* slab : slabs_) ::munmap(slab, slot_bytes_ * kSlots);
  }
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  struct Return {
    BlockPool* pool = nullptr;
    void operator()(std::byte* slot) const { pool->release(slot); }
  };
  /// Zeroed. Must be destroyed before the pool. nullptr: no memory.
  using Slot = std::unique_ptr<std::byte, Return>;
  Slot allocate() {
    if (free_.empty() && !add_slab()) return {nullptr, {this}};
    Slot slot{free_.back(), {this}};
    free_.pop_back();
    return slot;
  }
  std::span<std::byte> span(const Slot& slot) const { return {slot.get(), slot ? slot_bytes_ : 0}; }

 private:
  static constexpr std::size_t kSlots = 512;

  bool add_slab() {
    free_.reserve(slabs_.size() * kSlots + kSlots);  // so that release() never allocates
    void* base = ::mmap(nullptr, slot_bytes_ * kSlots, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return false;
    ::madvise(base, slot_bytes_ * kSlots, MADV_NOHUGEPAGE);
    slabs_.push_back(static_cast<std::byte*>(base));
    for (std::size_t i = kSlots; i-- > 0;) free_.push_back(slabs_.back() + i * slot_bytes_);
    return true;
  }
  void release(std::byte* slot) {
    ::madvise(slot, slot_bytes_, MADV_DONTNEED);
    free_.push_back(slot);
  }

  std::size_t slot_bytes_;
  std::vector<std::byte*> slabs_, free_;
};

}  // namespace uroce::mapping
