// Keeps a memif link up, and workers out of the driver while it changes.
//
// DPDK's memif driver handles its control socket on EAL's interrupt thread and unmaps the shared rings there when
// the peer goes away, whatever the workers are doing in them. And its client end never connects again by itself.
// So:
//
//   - While the link is up, the interrupt thread is held in a callback of ours (hold); it gets out ten times a
//     second for a moment, and only while the workers stand outside the driver (DriverGate, Gate in port.h). So
//     nothing of the control socket is handled while a worker may look at a ring.
//   - While the link is down the gate is closed and the interrupt thread runs free; a client tries to connect every
//     tenth of a second.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "drivers/packet/dpdk/port.h"

struct rte_intr_handle;

namespace uroce::dpdk {

class LinkKeeper {
 public:
  /// The gate starts closed. A client's port has not been started; a server's has. `on_change` is called on the
  /// keeper's thread with the state of the link.
  LinkKeeper(std::uint16_t port, bool client, DriverGate& keeper, std::vector<Gate*> gates,
             std::function<void(bool up)> on_change);
  /// Leaves the gate closed.
  ~LinkKeeper();
  LinkKeeper(const LinkKeeper&) = delete;
  LinkKeeper& operator=(const LinkKeeper&) = delete;

 private:
  static void on_interrupt(void* self);
  void hold();
  void close_gate();
  bool link_up() const;
  void run();
  bool reconnect();
  void wait(std::unique_lock<std::mutex>& lock, long milliseconds);

  std::uint16_t port_;
  bool client_;
  DriverGate& keeper_;
  std::vector<Gate*> gates_;
  std::function<void(bool)> on_change_;
  int event_ = -1;  // readable: the interrupt thread shall come in
  rte_intr_handle* handle_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace uroce::dpdk
