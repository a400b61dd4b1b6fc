// Replaces operator new and delete of the test program by ones that count. A file of its own: inlined next to a
// use, gcc takes malloc and free for a mismatched pair.
#include "allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::size_t> g_allocations{0};

void* allocate(std::size_t bytes) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes);
}

}  // namespace

namespace uroce::worker::testing {

std::size_t allocations() { return g_allocations.load(std::memory_order_relaxed); }

}  // namespace uroce::worker::testing

void* operator new(std::size_t bytes) {
  if (void* const memory = allocate(bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
