// What exists once in a process, whatever the number of its devices: the numbers of sessions, what each user holds,
// and the pollers that the process reports to others on the machine.
//
// Call contract. The control thread only. It outlives the devices (ControlState).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "control/machine/config.h"
#include "control/machine/poller_census.h"
#include "control/session/quotas.h"
#include "control/session/users.h"

namespace uroce::control {

/// What reading the configuration again has changed.
struct Reloaded {
  std::string error;                 ///< empty: none; otherwise nothing has changed
  std::vector<std::string> changed;  ///< keys of settings that are in force now
  std::vector<std::string> waiting;  ///< that take effect with a restart
};

/// A setting as the configuration file has it.
struct Setting {
  std::string key;
  std::vector<std::string> value, standard;  ///< one text for each element; `standard`: without a configuration
  bool repeats = false;                      ///< an array in the file
  bool live = false;                         ///< a new value takes effect without a restart
};

class Process {
 public:
  /// `config`, `workers`: of each device. A user's limits, and the capacity that all users share, hold for all
  /// devices together: no user fills the tables of one of them.
  Process(const DaemonConfig& config, std::uint32_t workers)
      : workers_(workers), quotas_(config.limits, capacity_of(config, workers)) {}
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  /// Reads the configuration again. Without set_reload() that is refused.
  Reloaded reload() const {
    return reload_ ? reload_() : Reloaded{"this daemon has no configuration to read", {}, {}};
  }
  void set_reload(std::function<Reloaded()> reload) { reload_ = std::move(reload); }
  /// Those in force; empty without set_settings().
  std::vector<Setting> settings() const { return settings_ ? settings_() : std::vector<Setting>(); }
  void set_settings(std::function<std::vector<Setting>()> settings) { settings_ = std::move(settings); }

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
  std::function<Reloaded()> reload_;
  std::function<std::vector<Setting>()> settings_;
  std::uint32_t polling_ = 0;
};

}  // namespace uroce::control
