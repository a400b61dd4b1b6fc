// What the administrator of a daemon grants a user: a share of the workers' turns, and a limit of what it sends.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/types.h"

namespace uroce::proto {

/// What all QPs of a user together may send per second, on all workers: a token bucket (work/rate_limit.h).
struct UserRateLimit {
  std::uint32_t kbps = 0;            ///< not 0
  std::atomic<Nanos> clear_at = 0;   ///< when all frames so far have left, at this rate
  std::atomic<Nanos> next_turn = 0;  ///< of a QP that has to wait: after those that wait already
};

/// How a user shares the workers with others.
struct UserShare {
  std::uint32_t weight = 1;        ///< turns for each turn of a user of weight 1
  UserRateLimit* limit = nullptr;  ///< lives until the QP is destroyed; nullptr: none
};

}  // namespace uroce::proto
