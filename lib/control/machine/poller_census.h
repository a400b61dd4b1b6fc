// The number of threads of daemons and clients that poll on this machine: a file in the run directory, mapped by
// all daemons. A daemon owns one slot while it holds the lock on the slot's first byte, which the kernel releases
// when the process ends; slots without a lock do not count.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "platform/unique_fd.h"

namespace uroce::control {

struct Pollers {
  std::uint32_t daemons = 0;
  std::uint32_t workers = 0;
  std::uint32_t sessions = 0;  ///< with connected QPs
  std::uint32_t before = 0;    ///< workers of the daemons in earlier slots that have such sessions
};

class PollerCensus {
 public:
  static constexpr std::uint32_t kSlots = 64;

  PollerCensus() = default;
  ~PollerCensus();
  PollerCensus(const PollerCensus&) = delete;
  PollerCensus& operator=(const PollerCensus&) = delete;

  absl::Status open(const std::string& path);
  void publish(std::uint32_t workers, std::uint32_t sessions);
  /// Sums over all running daemons, this one included.
  Pollers total() const;

 private:
  struct Slot {
    std::uint32_t pid, workers, sessions, reserved;
  };
  bool locked_by_other(std::uint32_t slot) const;

  UniqueFd fd_;
  Slot* slots_ = nullptr;
  std::uint32_t own_ = kSlots;
};

/// Cores that this process may use.
std::uint32_t usable_cores();

}  // namespace uroce::control
