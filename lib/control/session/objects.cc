#include "control/session/objects.h"

namespace uroce::control {

PrivateBlock::PrivateBlock(std::size_t bytes) {
  constexpr std::size_t kAlignment = 64;
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded == 0 ? kAlignment : rounded)));
  if (data_ == nullptr) return;
  bytes_ = bytes;
}

}  // namespace uroce::control
