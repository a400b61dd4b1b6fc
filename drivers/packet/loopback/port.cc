#include "drivers/packet/loopback/port.h"

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <new>

namespace uroce::loopback {
namespace {

constexpr std::size_t kHugepage = std::size_t{2} << 20;
constexpr std::uint32_t kHeaderBytes = 18;  // Ethernet, 802.1Q

}  // namespace

Port::Port(const PortOptions& options) : options_(options) {
  // An odd number of cache lines apart: neighbours' headers fall into different sets.
  stride_ = (options.mtu + kHeaderBytes + 63) / 64 * 64 | 64;
  bytes_ = (std::size_t{stride_} * options.buffers + kHugepage - 1) / kHugepage * kHugepage;
  void* memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  ::madvise(memory, bytes_, MADV_HUGEPAGE);
  memory_ = static_cast<std::byte*>(memory);
  free_.reserve(options.buffers);
  for (std::uint32_t i = options.buffers; i-- != 0;) free_.push_back(memory_ + std::size_t{i} * stride_);
  wake_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);  // never written: nothing arrives from outside
}

Port::~Port() {
  ::munmap(memory_, bytes_);
  if (wake_fd_ >= 0) ::close(wake_fd_);
}

std::size_t Port::allocate(std::span<base::Frame> frames) {
  const std::size_t count = std::min(frames.size(), free_.size());
  for (base::Frame& frame : frames.first(count)) {
    frame = {
        .data = free_.back(), .length = 0, .capacity = stride_, .flags = 0, .sender = 0, .handle = free_.back()};
    free_.pop_back();
  }
  return count;
}

std::size_t Port::transmit(std::span<base::Frame> frames) {
  for (const base::Frame& frame : frames) counters_.tx_bytes += frame.length;
  counters_.tx_packets += frames.size();
  discard(frames);
  return frames.size();
}

void Port::discard(std::span<base::Frame> frames) {
  for (const base::Frame& frame : frames) free_.push_back(static_cast<std::byte*>(frame.handle));
}

net::DeviceInfo Port::info() const { return {.mac = options_.mac, .mtu = options_.mtu}; }

}  // namespace uroce::loopback
