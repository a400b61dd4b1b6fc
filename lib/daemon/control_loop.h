// The control thread of a process: one epoll set over the descriptors of all its devices, each served by its
// Conductor.
//
// Call contract. serve() on the control thread; the conductors outlive the loop's use of them.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "base/types.h"
#include "control/machine/config.h"
#include "control/state/process.h"
#include "platform/unique_fd.h"

namespace uroce::daemon {

class Conductor;

/// Settings that were read again.
struct Reread {
  control::Reloaded outcome;
  std::vector<control::DaemonConfig> devices;  ///< in their order, if there is no error
};

/// What a process tells whoever started it, and asks for.
struct ProcessHooks {
  std::function<void()> on_ready;  ///< once clients can connect
  /// Every alive_interval, if the control thread and all workers have run since the last call. May be empty.
  std::function<void()> on_alive;
  Nanos alive_interval = kSecond;
  /// Reads the settings again. May be empty: the process has none.
  std::function<Reread()> reread;
  /// The settings in force. May be empty: the process has none.
  std::function<std::vector<control::Setting>()> settings;
  /// When it becomes true, for instance in a signal handler, the settings are read again. May be null.
  std::atomic<bool>* reload = nullptr;
};

class ControlLoop {
 public:
  static constexpr std::size_t kMaxDevices = 256;

  ControlLoop();
  ControlLoop(const ControlLoop&) = delete;
  ControlLoop& operator=(const ControlLoop&) = delete;

  /// Opens the conductor's socket at `path`, and serves it from now on.
  absl::Status listen(Conductor& conductor, const std::string& path);
  /// `on_turn`: called in each round, at least ten times a second.
  void serve(const std::atomic<bool>& stop, const ProcessHooks& hooks, const std::function<void()>& on_turn = {});

 private:
  void dispatch(std::span<epoll_event> events);
  /// Tells the conductors which of their sessions removed pages from under the process.
  void take_truncations();
  void check_alive(Nanos now, const ProcessHooks& hooks);

  UniqueFd epoll_;
  std::vector<Conductor*> devices_;  // by what their tags begin with
  bool pinged_ = false;
  Nanos next_alive_ = 0;
};

}  // namespace uroce::daemon
