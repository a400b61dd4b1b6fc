// Queue pair numbers: 24 bits, of which the top 4 name the worker, so that steering a packet is one shift. The rest
// walks through all 2^20 values in an order that depends on the seed: a number comes back only after all others,
// and the next one can't be guessed from the last.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/types.h"

namespace uroce::daemon {

inline constexpr std::uint32_t kQpnLocalBits = 20;
inline constexpr std::uint32_t kMaxWorkers = 1u << (24 - kQpnLocalBits);

constexpr std::uint32_t worker_of(Qpn qpn) { return qpn.value >> kQpnLocalBits; }

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

}  // namespace uroce::daemon
