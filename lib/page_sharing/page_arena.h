// Memory for the bookkeeping of this library, separate from the program's heap: pages of the heap are being moved,
// its locks may be held by a thread that waits for the move, and the caller may be a custom malloc. Not
// thread-safe.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>

#include "page_sharing/raw_syscall.h"

namespace uroce::page_sharing {

inline constexpr std::size_t kPageBytes = 4096;

inline constexpr std::uint64_t page_floor(std::uint64_t value) { return value & ~std::uint64_t{kPageBytes - 1}; }
inline constexpr std::uint64_t page_ceil(std::uint64_t value) { return page_floor(value + kPageBytes - 1); }

/// mmap(2) that does not write errno. Null on failure; `error`, if given, receives the errno.
inline void* map_pages(std::uintptr_t at, std::size_t bytes, int protection, int flags, int fd = -1,
                       std::uint64_t offset = 0, int* error = nullptr) {
  const long result = raw_syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
  if (result < 0 && result > -4096) {
    if (error != nullptr) *error = static_cast<int>(-result);
    return nullptr;
  }
  return reinterpret_cast<void*>(result);
}

inline void unmap_pages(void* at, std::size_t bytes) { raw_syscall(SYS_munmap, at, bytes); }

class Arena {
 public:
  static constexpr std::size_t kNodeBytes = 128;

  /// Null when out of memory. Blocks larger than kNodeBytes are separate mappings.
  void* allocate(std::size_t bytes) {
    if (bytes > kNodeBytes) {
      return map_pages(0, page_ceil(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    }
    if (!reserve(1)) return nullptr;
    Node* node = free_;
    free_ = node->next;
    --free_nodes_;
    return node;
  }

  void release(void* at, std::size_t bytes) {
    if (at == nullptr) return;
    if (bytes > kNodeBytes) return unmap_pages(at, page_ceil(bytes));
    free_ = new (at) Node{free_};
    ++free_nodes_;
  }

  /// Guarantees that the next `nodes` allocations of at most kNodeBytes succeed. False: out of memory.
  bool reserve(std::size_t nodes) {
    while (free_nodes_ < nodes) {
      auto* slab =
          static_cast<std::byte*>(map_pages(0, kSlabBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS));
      if (slab == nullptr) return false;
      for (std::size_t at = 0; at < kSlabBytes; at += kNodeBytes) release(slab + at, kNodeBytes);
    }
    return true;
  }

 private:
  struct Node {
    Node* next;
  };
  static constexpr std::size_t kSlabBytes = 64 * 1024;

  Node* free_ = nullptr;
  std::size_t free_nodes_ = 0;
};

/// For the standard containers. Callers reserve() before they insert, so that allocate() does not throw.
template <class T>
struct ArenaAllocator {
  using value_type = T;

  explicit ArenaAllocator(Arena* a) : arena(a) {}
  template <class U>
  ArenaAllocator(const ArenaAllocator<U>& other) : arena(other.arena) {}

  T* allocate(std::size_t n) {
    void* at = arena->allocate(n * sizeof(T));
    if (at == nullptr) throw std::bad_alloc();
    return static_cast<T*>(at);
  }
  void deallocate(T* at, std::size_t n) { arena->release(at, n * sizeof(T)); }
  template <class U>
  bool operator==(const ArenaAllocator<U>& other) const {
    return arena == other.arena;
  }

  Arena* arena;
};

/// A growing array of trivially copyable values. push() returns false when out of memory.
template <class T>
class ArenaVector {
 public:
  explicit ArenaVector(Arena& arena) : arena_(&arena) {}
  ArenaVector(ArenaVector&& other) noexcept
      : arena_(other.arena_), data_(other.data_), size_(other.size_), capacity_(other.capacity_) {
    other.data_ = nullptr;
    other.size_ = other.capacity_ = 0;
  }
  ArenaVector& operator=(ArenaVector&&) = delete;
  ~ArenaVector() { arena_->release(data_, capacity_ * sizeof(T)); }

  bool push(const T& value) {
    if (size_ == capacity_ && !grow()) return false;
    data_[size_++] = value;
    return true;
  }
  void clear() { size_ = 0; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  T& back() { return data_[size_ - 1]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }

 private:
  bool grow() {
    static_assert(sizeof(T) <= Arena::kNodeBytes && std::is_trivially_copyable_v<T>);
    const std::size_t bytes = capacity_ == 0 ? Arena::kNodeBytes : page_ceil(capacity_ * sizeof(T) * 2);
    auto* data = static_cast<T*>(arena_->allocate(bytes));
    if (data == nullptr) return false;
    for (std::size_t i = 0; i < size_; ++i) data[i] = data_[i];
    arena_->release(data_, capacity_ * sizeof(T));
    data_ = data;
    capacity_ = bytes / sizeof(T);
    return true;
  }

  Arena* arena_;
  T* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace uroce::page_sharing
