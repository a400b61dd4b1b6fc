// Where the thread that watches the workers (control/diagnosis/stall_watch.h) waits while none of them runs.
//
// Edges: the watcher closes the gate and then checks each thread; a thread stores that it runs (WorkerSleep,
// StallWatch::note_control) and then calls open(). All are seq_cst, so either the watcher sees the thread run or
// the thread sees the closed gate.
#pragma once

#include <atomic>
#include <cstdint>

namespace uroce::worker {

class WatchGate {
 public:
  /// Any thread, after it has stored that it runs. A load, unless the watcher waits.
  void open() {
    if (closed_.load(std::memory_order_seq_cst) == 0) return;
    closed_.store(0, std::memory_order_seq_cst);
    closed_.notify_all();
  }
  // The watcher.
  void close() { closed_.store(1, std::memory_order_seq_cst); }
  /// Returns when the gate is open.
  void wait() const { closed_.wait(1, std::memory_order_seq_cst); }

 private:
  std::atomic<int> closed_{0};
};

}  // namespace uroce::worker
