// Commands from the control thread to a worker: they run on the worker's thread between two duty cycles, while the
// control thread waits. So a command is also a quiescent point: afterwards the worker uses nothing that it read
// before.
//
// Edges: the Channel carries the command to the worker. serve() (release on done) pairs with the end of call()
// (acquire); after that store the worker does not touch the entry, which may be on the caller's stack.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <vector>

#include "worker/channel.h"
#include "worker/command_trace.h"

namespace uroce::worker {

class Mailbox {
 public:
  /// `clock`: for the trace of commands.
  explicit Mailbox(Nanos (*clock)()) : trace_(clock) {}

  /// A command and whether it has run. Stays where it is until then.
  struct Entry {
    explicit Entry(const WorkerCommandRef& what) : command(what) {}
    WorkerCommandRef command;
    std::atomic<bool> done{false};
    bool traced = true;  ///< kept in the trace of commands
  };

  /// Runs the command of `entry` at the worker's next duty cycle; returns at once.
  void post(Entry& entry) { waiting_.put(&entry); }

  /// Control thread: runs `command` on the worker and returns when it has run. `wake` is called once it is visible.
  template <class Wake>
  void call(const WorkerCommandRef& command, Wake&& wake) {
    Entry entry{command};
    post(entry);
    wake();
    for (;;) {
      const std::uint32_t served = served_.load(std::memory_order_acquire);
      if (entry.done.load(std::memory_order_acquire)) return;
      served_.wait(served, std::memory_order_acquire);
    }
  }
  /// Runs `command` on the caller's thread, for a worker that has none.
  void run(const WorkerCommandRef& command, WorkerCore& worker) { trace_.run(command, worker); }

  bool waiting() const { return waiting_.waiting(); }

  /// Worker: runs the commands that wait. False: there were none.
  bool serve(WorkerCore& worker) {
    if (!waiting_.waiting()) return false;
    waiting_.take(running_);
    for (Entry* entry : running_) {
      if (entry->traced) {
        trace_.run(entry->command, worker);
      } else {
        entry->command.run(worker);
      }
      entry->done.store(true, std::memory_order_release);
      served_.fetch_add(1, std::memory_order_release);
      served_.notify_all();
    }
    return true;
  }

  const CommandTrace& trace() const { return trace_; }

 private:
  // Without a limit: each entry belongs to a caller that waits, or that posts it again once it has run.
  Channel<Entry*> waiting_{std::numeric_limits<std::size_t>::max(), ChannelReader::kPolls};
  std::vector<Entry*> running_;           // the worker
  std::atomic<std::uint32_t> served_{0};  // commands that have run
  CommandTrace trace_;
};

}  // namespace uroce::worker
