// Detects workers that wait for a client's memory. A page fault in mapped memory waits for what the client does
// to the file (fallocate(2) with FALLOC_FL_PUNCH_HOLE) or for a disk, and nothing ends such a wait. So a thread
// checks each worker and the control thread every 2 ms while any of them runs. Waits are charged to the
// stall budget of the memory's user; when that is used up, the memory of the session is replaced by zero pages,
// which ends all later waits, and the control thread closes the session. The control thread cannot do this itself:
// it may be waiting for that worker.
//
// Call contract. The control thread, except run(), which is the thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/types.h"
#include "mapping/stall_budget.h"
#include "worker/worker.h"

namespace uroce::daemon {

class StallWatch {
 public:
  explicit StallWatch(WorkerShared& workers) : workers_(workers) {}
  ~StallWatch() { stop(); }
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

  /// By the control thread. Without it (tests, or no thread is free) nothing is watched.
  void start();
  void stop();

  /// `mark`: what a worker notes while it uses memory of this session (proto::mark_of()).
  void add(std::uint64_t mark, std::uint64_t session, const std::shared_ptr<StallBudget>& budget);
  /// Does nothing if the mark belongs to another session.
  void remove(std::uint64_t mark, std::uint64_t session);

  /// The control thread begins to serve a session (proto::mark_of_session()), or has finished (0).
  void note_control(std::uint64_t mark);

  /// A session whose memory was taken away since the last call; 0: none.
  std::uint64_t take_offender();

 private:
  static constexpr Nanos kPeriod = 2 * kMillisecond;
  static constexpr int kIdleChecks = 25;  ///< without a running thread; then the watch waits until one runs

  struct Watched {
    std::uint64_t session = 0;
    std::shared_ptr<StallBudget> budget;
  };

  void run();
  bool any_runs() const;
  /// Waits until a worker or the control thread runs.
  void wait_for_work(std::unique_lock<std::mutex>& lock);
  void check(std::uint64_t mark, pid_t thread, Nanos now);

  WorkerShared& workers_;
  std::atomic<std::uint64_t> control_mark_{0};
  pid_t control_thread_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<std::uint64_t, Watched> watched_;
  std::vector<std::uint64_t> offenders_;
  std::atomic<bool> any_offender_{false};
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace uroce::daemon
