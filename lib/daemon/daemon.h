// A whole daemon: workers over the given devices, and the conductor on the calling thread.
//
// run_daemon(config, devices, stop) serves until `stop` becomes true. A signal handler may set it: the control
// thread checks it after every interrupted wait and at least ten times a second.
//
// devices[i] is used only by worker i's thread, from the call until the return. When it returns, all files in the
// run directory are removed, and clients have seen their device die.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "control/config.h"
#include "net/device.h"
#include "worker/worker_loop.h"

namespace uroce::daemon {

/// Everything but the device-typed loops.
class Daemon {
 public:
  Daemon(const DaemonConfig& config, const net::DeviceInfo& device, std::uint32_t workers);
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  /// Takes the lock, binds the socket, writes the sysfs-like tree. Errors name the remedy.
  absl::Status open();
  /// Where worker `index` publishes its device's counters, and everything else it needs.
  WorkerCore& worker(std::uint32_t index);
  /// The control thread: serves clients until `stop`.
  void serve(const std::atomic<bool>& stop);
  /// Reports to all clients that the device is gone (IBV_EVENT_DEVICE_FATAL), and frees their objects. The workers
  /// must still run.
  void close();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

template <net::PacketDevice Device>
absl::Status run_daemon(const DaemonConfig& config, std::span<Device* const> devices,
                        const std::atomic<bool>& stop) {
  if (devices.empty()) return absl::InvalidArgumentError("a daemon needs at least one device");
  const auto count = static_cast<std::uint32_t>(devices.size());
  Daemon daemon(config, devices[0]->info(), count);
  if (absl::Status status = daemon.open(); !status.ok()) return status;

  std::atomic<bool> stop_workers{false};
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      WorkerLoop<Device> loop(daemon.worker(i), *devices[i]);
      loop.run(stop_workers);
    });
  }
  daemon.serve(stop);
  daemon.close();
  stop_workers.store(true, std::memory_order_seq_cst);
  for (std::uint32_t i = 0; i < count; ++i) daemon.worker(i).wake();
  for (std::thread& thread : threads) thread.join();
  return absl::OkStatus();
}

}  // namespace uroce::daemon
