// Frame buffers in ordinary memory, for devices without buffers of their own. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/frame.h"

namespace uroce::packet {

class FramePool {
 public:
  /// `buffers` of at least `mtu` + 18 bytes each. Throws std::bad_alloc when there is no memory.
  FramePool(std::uint32_t mtu, std::uint32_t buffers);
  ~FramePool();
  FramePool(const FramePool&) = delete;
  FramePool& operator=(const FramePool&) = delete;

  /// Fills `frames` from the front with empty frames, whose handle is the buffer. Returns how many there were.
  std::size_t allocate(std::span<base::Frame> frames);
  void give_back(std::span<const base::Frame> frames);
  std::size_t available() const { return free_.size(); }

 private:
  std::uint32_t stride_ = 0;
  std::size_t bytes_ = 0;
  std::byte* memory_ = nullptr;
  std::vector<std::byte*> free_;  // the last one given back goes out first: it is still in the cache
};

}  // namespace uroce::packet
