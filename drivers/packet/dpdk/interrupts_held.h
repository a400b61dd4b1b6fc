// Stops EAL's interrupt thread while its work would race with ours.
#pragma once

#include <condition_variable>
#include <mutex>

struct rte_intr_handle;

namespace uroce::dpdk {

/// While an object exists EAL's interrupt thread is blocked. Closing a memif races with the driver's handling of a
/// peer that disconnects at the same moment, and EAL's cleanup unmaps memory that the thread reads.
class InterruptsHeld {
 public:
  InterruptsHeld();
  ~InterruptsHeld();
  InterruptsHeld(const InterruptsHeld&) = delete;
  InterruptsHeld& operator=(const InterruptsHeld&) = delete;

 private:
  static void on_interrupt(void* self);

  int event_ = -1;
  rte_intr_handle* handle_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false, release_ = false;
};

}  // namespace uroce::dpdk
