// Memory for tables that many QPs share, in transparent huge pages: with 10,000 QPs in turn, ordinary pages would
// cost a TLB miss for nearly every line touched.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <new>

namespace uroce::platform {

/// Hands out whole mappings; put a std::pmr::monotonic_buffer_resource in front of it.
class HugePages final : public std::pmr::memory_resource {
 public:
  static constexpr std::size_t kPage = std::size_t{2} << 20;

 private:
  static std::size_t rounded(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    if (alignment > kPage) throw std::bad_alloc();
    const std::size_t wanted = rounded(bytes);
    void* start =
        ::mmap(nullptr, wanted + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) throw std::bad_alloc();
    const auto address = reinterpret_cast<std::uintptr_t>(start);
    const std::uintptr_t aligned = (address + kPage - 1) / kPage * kPage;
    if (aligned != address) ::munmap(start, aligned - address);
    ::munmap(reinterpret_cast<void*>(aligned + wanted), address + kPage - aligned);
    // Where huge pages are switched off this fails, and ordinary ones serve.
    ::madvise(reinterpret_cast<void*>(aligned), wanted, MADV_HUGEPAGE);
    return reinterpret_cast<void*>(aligned);
  }
  void do_deallocate(void* memory, std::size_t bytes, std::size_t) override { ::munmap(memory, rounded(bytes)); }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};

}  // namespace uroce::platform
