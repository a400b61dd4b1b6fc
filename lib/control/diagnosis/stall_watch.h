// Detects workers that wait for a client's memory. A page fault in mapped memory waits for what the client does
// to the file (fallocate(2) with FALLOC_FL_PUNCH_HOLE) or for a disk, and nothing ends such a wait. So a thread
// checks each worker and the control thread every 2 ms while any of them runs. Waits are charged to the
// stall budget of the memory's user; when that is used up, or one wait for memory of a privileged user lasts a
// second, the memory of the session is replaced by zero pages,
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
#include "mapping/pagemap.h"
#include "mapping/stall_budget.h"
#include "proto/state/memory_in_use.h"
#include "worker/worker.h"

namespace uroce::control {

struct Session;

class StallWatch {
 public:
  explicit StallWatch(worker::WorkerShared& workers) : workers_(workers) {}
  ~StallWatch() { stop(); }
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

  /// By the control thread. Without it (tests, or no thread is free) nothing is watched.
  void start();
  void stop();

  /// `mark`: what a worker notes while it uses memory of this session (proto::mark_of()).
  void add(std::uint64_t mark, const Session& session);
  /// Does nothing if the mark belongs to another session.
  void remove(std::uint64_t mark, std::uint64_t session);

  /// The control thread begins to serve a session (proto::mark_of_session()), or has finished (0).
  void note_control(std::uint64_t mark);

  /// The mark of whoever makes a worker wait; 0: nobody here, but a user of another device. `pages`: of this
  /// process.
  static std::uint64_t cause(const proto::BusyWith& with, const mapping::Pagemap& pages);

  /// A session whose memory was taken away since the last call; 0: none.
  std::uint64_t take_offender();

 private:
  static constexpr Nanos kPeriod = 2 * kMillisecond;
  /// A worker also waits for locks whose holder gets no processor of a busy machine, again and again, but not for
  /// so long: what privileged users lose their memory for is one wait.
  static constexpr std::uint32_t kPrivilegedChecks = kSecond / kPeriod;
  static constexpr int kIdleChecks = 25;  ///< without a running thread; then the watch waits until one runs

  struct Watched {
    std::uint64_t session = 0;
    std::shared_ptr<mapping::StallBudget> budget;
    bool privileged = false;
  };
  /// Of a thread.
  struct Wait {
    std::uint64_t times_run = 0;  ///< since when it is the same wait
    std::uint64_t cause = 0;      ///< mark; 0: nobody here
    std::uint32_t checks = 0;     ///< how many have found it
  };

  void run();
  bool any_runs() const;
  /// Waits until a worker or the control thread runs.
  void wait_for_work(std::unique_lock<std::mutex>& lock);
  /// `busy_with()`: what the thread uses.
  template <class Look>
  void check(std::unique_lock<std::mutex>& lock, pid_t thread, Look busy_with);
  /// The wait that the thread is in; nullptr: none, or it is over.
  template <class Look>
  const Wait* find_wait(pid_t thread, Look busy_with);
  void charge(const Wait& wait, Nanos span, Nanos now);

  worker::WorkerShared& workers_;
  std::atomic<std::uint64_t> control_mark_{0};
  pid_t control_thread_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<std::uint64_t, Watched> watched_;
  std::unordered_map<pid_t, Wait> waits_;  // of the watch's own
  std::vector<std::uint64_t> offenders_;
  std::atomic<bool> any_offender_{false};
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace uroce::control
