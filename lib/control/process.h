// What exists once in a process, whatever the number of its devices: the numbers of sessions, what each user holds,
// and the pollers that the process reports to others on the machine.
//
// Call contract. The control thread only. It outlives the devices (ControlState).
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "control/config.h"
#include "control/poller_census.h"
#include "control/quotas.h"
#include "control/users.h"

namespace uroce::daemon {

class Process {
 public:
  /// `config`, `workers`: of each device. A user's limits, and the capacity that all users share, hold for all
  /// devices together: no user fills the tables of one of them.
  Process(const DaemonConfig& config, std::uint32_t workers)
      : workers_(workers), quotas_(config.limits, capacity_of(config, workers)) {}
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  Quotas& quotas() { return quotas_; }
  const Quotas& quotas() const { return quotas_; }
  Users& users() { return users_; }
  /// Never 0, and never the same twice: the sessions of all devices are guarded in one table (SigbusGuard).
  std::uint64_t new_session() { return ++last_session_; }

  /// Counts the pollers of this process among those of the machine from now on.
  absl::Status open_census(const std::string& path);
  /// A device has `now` sessions that poll, and had `before` when it called last. Returns the pollers of the
  /// machine, or of this process without a census.
  Pollers count_pollers(std::uint32_t before, std::uint32_t now);

 private:
  std::uint32_t workers_;  // threads: each steps a worker of every device
  Quotas quotas_;
  Users users_{quotas_};
  std::uint64_t last_session_ = 0;
  PollerCensus census_;
  bool has_census_ = false;
  std::uint32_t polling_ = 0;
};

}  // namespace uroce::daemon
