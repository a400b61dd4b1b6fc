#include "drivers/packet/frame_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace uroce::packet {
namespace {

constexpr std::size_t kHugepage = std::size_t{2} << 20;
constexpr std::uint32_t kHeaderBytes = 18;  // Ethernet, 802.1Q

}  // namespace

FramePool::FramePool(std::uint32_t mtu, std::uint32_t buffers) {
  // An odd number of cache lines apart: neighbours' headers fall into different sets.
  stride_ = (mtu + kHeaderBytes + 63) / 64 * 64 | 64;
  bytes_ = (std::size_t{stride_} * buffers + kHugepage - 1) / kHugepage * kHugepage;
  void* memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  ::madvise(memory, bytes_, MADV_HUGEPAGE);
  memory_ = static_cast<std::byte*>(memory);
  free_.reserve(buffers);
  for (std::uint32_t i = buffers; i-- != 0;) free_.push_back(memory_ + std::size_t{i} * stride_);
}

FramePool::~FramePool() { ::munmap(memory_, bytes_); }

std::size_t FramePool::allocate(std::span<base::Frame> frames) {
  const std::size_t count = std::min(frames.size(), free_.size());
  for (base::Frame& frame : frames.first(count)) {
    frame = {
        .data = free_.back(), .length = 0, .capacity = stride_, .flags = 0, .sender = 0, .handle = free_.back()};
    free_.pop_back();
  }
  return count;
}

void FramePool::give_back(std::span<const base::Frame> frames) {
  for (const base::Frame& frame : frames) free_.push_back(static_cast<std::byte*>(frame.handle));
}

}  // namespace uroce::packet
