// A whole daemon: RDMA devices over the given ports, worker threads, and the control loop on the calling thread.
//
// run_daemon(ports, hooks, stop) serves until `stop` becomes true. A signal handler may set it: the control thread
// checks it after every interrupted wait and at least ten times a second.
//
// Thread i steps worker i of every device, and nobody else uses ports[...].queues[i], from the call until the
// return. When it returns, all files in the run directory are removed, and clients have seen their devices die.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "control/machine/config.h"
#include "daemon/control_loop.h"
#include "net/device.h"
#include "worker/worker_loop.h"
#include "worker/worker_thread.h"

namespace uroce::daemon {

/// To the most that the process may have. To be called before ports are opened: each needs some.
void raise_descriptor_limit();

/// What an RDMA device is made of: its settings, and the queue pairs of its port, one for each worker.
template <net::PacketDevice Queue>
struct PortSpec {
  control::DaemonConfig config;
  std::vector<Queue*> queues;
};

/// Everything but the loops, which know the type of the ports.
class Daemon {
 public:
  Daemon(const control::DaemonConfig& config, std::uint32_t workers);
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  /// Another device. Its worker i shares a thread with worker i of the others.
  void add(const control::DaemonConfig& config, const net::DeviceInfo& port);
  /// Takes the locks, binds the sockets, writes the sysfs-like trees. Errors name the remedy.
  absl::Status open();
  /// Worker `index` of a device, in the order in which they were added.
  worker::WorkerCore& worker(std::size_t device, std::uint32_t index);
  /// The control thread: serves clients until `stop`.
  void serve(const std::atomic<bool>& stop, const ProcessHooks& hooks);
  /// Reports to all clients that their device is gone (IBV_EVENT_DEVICE_FATAL), and frees their objects. The
  /// workers must still run.
  void close();

 private:
  /// Reads the settings again, and takes over what can change while the devices serve.
  control::Reloaded reload(const ProcessHooks& hooks);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

template <net::PacketDevice Queue>
absl::Status run_daemon(std::span<const PortSpec<Queue>> ports, const ProcessHooks& hooks,
                        const std::atomic<bool>& stop) {
  const std::size_t workers = ports.empty() ? 0 : ports.front().queues.size();
  const auto differs = [workers](const PortSpec<Queue>& port) { return port.queues.size() != workers; };
  if (workers == 0) return absl::InvalidArgumentError("a daemon needs a port with at least one queue");
  if (std::ranges::any_of(ports, differs))
    return absl::InvalidArgumentError("ports with different numbers of queues");
  const auto count = static_cast<std::uint32_t>(workers);
  Daemon daemon(ports.front().config, count);
  for (const PortSpec<Queue>& port : ports) daemon.add(port.config, port.queues.front()->info());
  if (absl::Status status = daemon.open(); !status.ok()) return status;

  std::atomic<bool> stop_workers{false};
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      std::vector<std::unique_ptr<worker::WorkerLoop<Queue>>> loops;
      std::vector<worker::DutyCycle*> cycles;
      for (std::size_t d = 0; d < ports.size(); ++d) {
        loops.push_back(std::make_unique<worker::WorkerLoop<Queue>>(daemon.worker(d, i), *ports[d].queues[i]));
        cycles.push_back(loops.back().get());
      }
      worker::WorkerThread(std::move(cycles)).run(stop_workers);
    });
  }
  daemon.serve(stop, hooks);
  daemon.close();
  stop_workers.store(true, std::memory_order_seq_cst);
  for (std::uint32_t i = 0; i < count; ++i) daemon.worker(0, i).wake();
  for (std::thread& thread : threads) thread.join();
  return absl::OkStatus();
}

}  // namespace uroce::daemon
