// Allocates queue pair numbers (base/qpn_layout.h). The local part walks through all 2^20 values in an order that
// depends on the seed: a number is reused only after all others, and the next one cannot be guessed from the last.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/qpn_layout.h"
#include "base/types.h"

namespace uroce::control {

class QpnAllocator {
 public:
  QpnAllocator(std::uint32_t worker, std::uint64_t seed);

  /// nullopt: all are in use.
  std::optional<Qpn> allocate();
  void release(Qpn qpn);

 private:
  std::uint32_t scramble(std::uint32_t value) const;

  std::uint32_t worker_;
  std::uint32_t next_;
  std::uint64_t seed_;
  std::vector<bool> used_;
  std::uint32_t in_use_ = 0;
};

}  // namespace uroce::control
