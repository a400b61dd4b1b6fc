// One RDMA device of a daemon, without its port: memory table, link stack, workers, conductor, and its files in the
// run directory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "control/machine/config.h"
#include "control/machine/counters_file.h"
#include "control/state/process.h"
#include "daemon/conductor.h"
#include "daemon/control_loop.h"
#include "memory/table.h"
#include "net/device.h"
#include "net/link_stack.h"
#include "platform/unique_fd.h"
#include "worker/netdev_port.h"
#include "worker/worker.h"

namespace uroce::daemon {

/// Whether the settings can work. Errors name the remedy.
absl::Status check_config(const control::DaemonConfig& config, std::size_t workers);

class RdmaDevice {
 public:
  RdmaDevice(control::Process& process, const control::DaemonConfig& config, const net::DeviceInfo& port,
             std::uint32_t workers);
  /// Removes the device's files from the run directory.
  ~RdmaDevice();
  RdmaDevice(const RdmaDevice&) = delete;
  RdmaDevice& operator=(const RdmaDevice&) = delete;

  absl::Status check() const { return check_config(config_, cores_.size()); }
  /// Takes the lock on its name, writes the sysfs-like tree, and has the loop serve its socket.
  absl::Status open(ControlLoop& loop);

  /// Takes over what can change while it serves: addresses, gateways, CPUs of the workers.
  void reconfigure(const control::DaemonConfig& next);

  /// Begins and ends the thread of the kernel's interface. An error names the remedy.
  absl::Status start_netdev();
  void stop_netdev();

  worker::WorkerCore& worker(std::uint32_t index) { return *cores_[index]; }
  Conductor& conductor() { return *conductor_; }
  /// Whether commands to the workers are for their threads.
  void set_threaded(bool threaded) {
    for (auto& core : cores_) core->set_threaded(threaded);
  }

 private:
  std::string socket_path() const;
  absl::Status take_lock();
  /// Makes the page of counters; a device whose page cannot be made serves without.
  void open_counters();

  control::DaemonConfig config_;
  UniqueFd lock_;  ///< on the device's name, until all its files are gone
  const std::uint64_t seed_;
  memory::Table memory_;
  net::LinkStack link_;
  worker::WorkerShared shared_;
  std::vector<std::unique_ptr<worker::WorkerCore>> cores_;
  std::unique_ptr<worker::NetdevPort> netdev_;  ///< nullptr: the kernel has no interface
  control::CountersFile counters_;              ///< the workers and the conductor write to it
  std::unique_ptr<Conductor> conductor_;
  bool opened_ = false;
};

}  // namespace uroce::daemon
