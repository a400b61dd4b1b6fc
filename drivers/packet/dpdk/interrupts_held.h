// Stops EAL's interrupt thread where it can do no harm.
#pragma once

#include <condition_variable>
#include <mutex>

struct rte_intr_handle;

namespace uroce::dpdk {

/// While it lives EAL's interrupt thread stands still: closing a memif races with the driver's own handling of a
/// peer that goes at the same moment, and EAL's cleanup unmaps memory that the thread reads.
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
