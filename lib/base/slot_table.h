// Objects of one trivially copyable type in a fixed number of slots, named by index. Memory is touched only as
// slots are used; the slot freed last is reused first. Not thread-safe; no allocation after
// construction.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <new>
#include <type_traits>
#include <vector>

namespace uroce::base {

template <class T>
class SlotTable {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  explicit SlotTable(std::uint32_t capacity, std::pmr::memory_resource* memory = std::pmr::get_default_resource())
      : capacity_(capacity),
        memory_(memory),
        slots_(static_cast<Slot*>(memory->allocate(capacity * sizeof(Slot), alignof(Slot)))),
        links_(capacity, memory) {}
  ~SlotTable() { memory_->deallocate(slots_, capacity_ * sizeof(Slot), alignof(Slot)); }
  SlotTable(const SlotTable&) = delete;
  SlotTable& operator=(const SlotTable&) = delete;

  /// Index of a slot that now holds a fresh T, or kNone when all are taken.
  std::uint32_t allocate() {
    std::uint32_t index = free_;
    if (index != kNone) {
      free_ = links_[index];
    } else if (fresh_ < capacity_) {
      index = fresh_++;
    } else {
      return kNone;
    }
    new (&slots_[index].object) T();
    links_[index] = kUsed;
    ++used_;
    return index;
  }

  void release(std::uint32_t index) {
    assert(holds(index));
    links_[index] = free_;
    free_ = index;
    --used_;
  }

  bool holds(std::uint32_t index) const { return index < fresh_ && links_[index] == kUsed; }
  T& operator[](std::uint32_t index) { return slots_[index].object; }
  const T& operator[](std::uint32_t index) const { return slots_[index].object; }
  const T* address(std::uint32_t index) const { return &slots_[index].object; }

  std::uint32_t size() const { return used_; }
  std::uint32_t capacity() const { return static_cast<std::uint32_t>(capacity_); }
  /// Every index ever used is below this.
  std::uint32_t limit() const { return fresh_; }

 private:
  static constexpr std::uint32_t kUsed = kNone - 1;
  struct alignas(64) Slot {
    T object;
  };

  std::size_t capacity_;
  std::pmr::memory_resource* memory_;
  Slot* slots_;
  std::pmr::vector<std::uint32_t>
      links_;  // of a free slot the next one, else kUsed; apart, so that holds() is cheap
  std::uint32_t fresh_ = 0;
  std::uint32_t free_ = kNone;
  std::uint32_t used_ = 0;
};

}  // namespace uroce::base
