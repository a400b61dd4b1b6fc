// Commands from the conductor to a worker: run on the worker's thread between two duty cycles, while the conductor
// waits. So a command is also a quiescent point: what the worker held from its last cycle is gone.
//
// Edges: call() (release on waiting_, seq_cst with `asleep` of the worker) pairs with serve() (acquire);
// serve() (release on done) pairs with the end of call() (acquire).
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <vector>

namespace uroce::daemon {

class WorkerCore;

class Mailbox {
 public:
  using Function = std::function<void(WorkerCore&)>;

  /// Conductor: runs `function` on the worker and returns when it has run. `wake` is called once it is visible.
  template <class Wake>
  void call(const Function& function, Wake&& wake) {
    Entry entry{&function};
    {
      std::lock_guard lock(mutex_);
      entries_.push_back(&entry);
      waiting_.store(true, std::memory_order_seq_cst);
    }
    wake();
    entry.done.wait(0, std::memory_order_acquire);
    // The worker sets done and then notifies: it is out of the entry once it has taken the lock no more.
    std::lock_guard lock(mutex_);
  }

  bool waiting() const { return waiting_.load(std::memory_order_seq_cst); }

  /// Worker: runs what is waiting. True: there was something.
  bool serve(WorkerCore& worker) {
    if (!waiting_.load(std::memory_order_relaxed)) return false;
    std::lock_guard lock(mutex_);
    waiting_.store(false, std::memory_order_relaxed);
    for (Entry* entry : entries_) {
      (*entry->function)(worker);
      entry->done.store(1, std::memory_order_release);
      entry->done.notify_one();
    }
    entries_.clear();
    return true;
  }

 private:
  struct Entry {
    const Function* function;
    std::atomic<int> done{0};
  };

  std::mutex mutex_;
  std::vector<Entry*> entries_;
  std::atomic<bool> waiting_{false};
};

}  // namespace uroce::daemon
