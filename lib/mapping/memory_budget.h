// The budget that a session's mappings in the daemon are charged to.
#pragma once

#include <cstddef>
#include <cstdint>

namespace uroce::mapping {

class MemoryBudget {
 public:
  virtual ~MemoryBudget() = default;
  /// False: the session's user would exceed a limit. `queue_bytes`: shared memory that the daemon allocates.
  virtual bool take(std::size_t mappings, std::uint64_t queue_bytes) = 0;
  virtual void give_back(std::size_t mappings, std::uint64_t queue_bytes) = 0;
};

}  // namespace uroce::mapping
