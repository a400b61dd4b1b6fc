// A poll-mode thread: it steps one worker of each device, cycle after cycle, and yields or sleeps in between as
// PollPolicy decides.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/types.h"
#include "worker/duty_cycle.h"
#include "worker/duty_cycle_tracker.h"
#include "worker/poll_policy.h"
#include "worker/worker.h"

namespace uroce::worker {

class WorkerThread {
 public:
  /// At least one. The settings of the thread (CPU, poll mode) are those of the first; all sleep together
  /// (WorkerCore::sleep_with()).
  explicit WorkerThread(std::vector<DutyCycle*> workers);

  /// On the thread. Returns when `stop` is true and the worker has been woken.
  void run(const std::atomic<bool>& stop);

 private:
  /// Longest sleep while a port refuses frames: they are offered again after it.
  static constexpr Nanos kBackpressureNap = 20 * kMicrosecond;

  /// After this many yields with no more than a message or two between them, worker and programs alternate, and the
  /// worker takes a slice as long as theirs. With more work it keeps its short slice, so that it runs more often
  /// than the programs that wait for it.
  static constexpr std::uint32_t kTurns = 64;
  static constexpr Nanos kRepinInterval = 20 * kMillisecond;
  static constexpr std::uint32_t kManyLargeSteps = 100;    ///< in an interval
  static constexpr Nanos kPublishInterval = kMillisecond;  ///< of the counters in their page, unless it sleeps
  static constexpr std::size_t kFewFrames = 4;             ///< received and sent in a step

  template <class Of>
  bool any(Of&& of) const;
  /// Gives the thread its name, its CPU, timers without slack and a short scheduling slice.
  void prepare();
  bool step_all(Nanos now);
  /// Copies the counters of workers that have worked since the last time to their pages.
  void publish(Nanos now);
  /// Whether completion events were sent since the last call, to programs that have a core left.
  bool has_woken_programs();
  WorkerCore& first() const { return workers_.front()->worker(); }
  /// With fewer cores than pollers, after a step that found work.
  void yield_or_repin(Nanos now);
  /// Moves a busy worker to a core of its own. Two workers on one core carry half as much, and the scheduler does
  /// not separate threads that all run. A worker with single messages stays: waking it on another core takes
  /// longer, most of all in virtual machines.
  void repin(Nanos now);
  void leave_yield_mode();
  void yield(Nanos now);
  void sleep(Nanos now, const std::atomic<bool>& stop);
  bool may_sleep(const std::atomic<bool>& stop);

  const std::vector<DutyCycle*> workers_;
  std::vector<char> unpublished_;  // by worker: it has worked since its counters were published
  PollPolicy policy_;
  DutyCycleTracker cycle_;
  std::uint32_t turns_ = 0;  // yields since the last sleep or large step
  Nanos next_repin_ = 0, next_publish_ = 0;
  std::uint32_t large_steps_ = 0;  // steps with more than kFewFrames, in this interval
  std::size_t moved_ = 0;          // frames of this step
  std::uint64_t events_ = 0;       // completion events that were sent
};

}  // namespace uroce::worker
