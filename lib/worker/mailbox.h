// Commands from the control thread to a worker: they run on the worker's thread between two duty cycles, while the
// control thread waits. So a command is also a quiescent point: afterwards the worker uses nothing that it read
// before.
//
// Edges: call() (release on waiting_, seq_cst with the worker's `sleeping_`) pairs with serve() (acquire);
// serve() (release on done) pairs with the end of call() (acquire).
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "worker/command_trace.h"

namespace uroce::daemon {

class Mailbox {
 public:
  /// A command and whether it has run. Stays where it is until then.
  struct Entry {
    explicit Entry(const WorkerCommandRef& what) : command(what) {}
    WorkerCommandRef command;
    std::atomic<int> done{0};
    bool traced = true;  ///< kept in the trace of commands
  };

  /// Runs the command of `entry` at the worker's next duty cycle; returns at once.
  void post(Entry& entry) {
    std::lock_guard lock(mutex_);
    entries_.push_back(&entry);
    waiting_.store(true, std::memory_order_seq_cst);
  }

  /// Control thread: runs `command` on the worker and returns when it has run. `wake` is called once it is visible.
  template <class Wake>
  void call(const WorkerCommandRef& command, Wake&& wake) {
    Entry entry{command};
    post(entry);
    wake();
    entry.done.wait(0, std::memory_order_acquire);
    // The worker sets `done` and then notifies under the lock: once the lock is free, it does not use the entry.
    std::lock_guard lock(mutex_);
  }
  /// Runs `command` on the caller's thread, for a worker that has none.
  void run(const WorkerCommandRef& command, WorkerCore& worker) { trace_.run(command, worker); }

  bool waiting() const { return waiting_.load(std::memory_order_seq_cst); }

  /// Worker: runs the commands that wait. False: there were none.
  bool serve(WorkerCore& worker) {
    if (!waiting_.load(std::memory_order_relaxed)) return false;
    std::lock_guard lock(mutex_);
    waiting_.store(false, std::memory_order_relaxed);
    for (Entry* entry : entries_) {
      if (entry->traced) {
        trace_.run(entry->command, worker);
      } else {
        entry->command.run(worker);
      }
      entry->done.store(1, std::memory_order_release);
      entry->done.notify_one();
    }
    entries_.clear();
    return true;
  }

  const CommandTrace& trace() const { return trace_; }

 private:
  std::mutex mutex_;
  std::vector<Entry*> entries_;
  std::atomic<bool> waiting_{false};
  CommandTrace trace_;
};

}  // namespace uroce::daemon
