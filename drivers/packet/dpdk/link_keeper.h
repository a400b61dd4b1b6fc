// Keeps a memif link up, and workers out of the driver while the link changes.
//
// DPDK's memif driver unmaps the shared rings on EAL's interrupt thread as soon as the peer closes its control
// socket, even while a worker reads them, and its client side never reconnects. Therefore:
//
//   link up     a callback holds the interrupt thread; ten times a second it closes the gates (Gate, port.h), lets
//               that thread handle the control socket, and opens them again
//   link down   the gates are closed and the interrupt thread runs freely; a client tries to connect ten times a
//               second
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
  /// The gate starts closed. A server's port must have been started, a client's must not. `on_change` is called on
  /// the keeper's thread with the state of the link.
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
  int event_ = -1;  // readable: the interrupt thread must call hold()
  rte_intr_handle* handle_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace uroce::dpdk
