#include "control/stall_watch.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>

#include "control/session.h"
#include "mapping/helper_thread.h"
#include "mapping/sigbus_guard.h"
#include "mapping/thread_state.h"
#include "platform/clock.h"
#include "platform/log.h"

namespace uroce::daemon {

void StallWatch::start() {
  stopping_ = false;
  control_thread_ = static_cast<pid_t>(::syscall(SYS_gettid));
  if (!start_helper_thread([this] { run(); }, &thread_)) {
    log(LogLevel::kWarning,
        "no thread is free to watch the workers: a client whose memory stalls delays the others");
  }
}

void StallWatch::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  workers_.watch_gate.open();
  if (thread_.joinable()) thread_.join();
}

void StallWatch::add(std::uint64_t mark, const Session& session) {
  bool first;
  {
    const std::lock_guard lock(mutex_);
    first = watched_.empty();
    watched_[mark] = {session.id, session.stall_budget, session.privileged};
  }
  if (first) changed_.notify_one();
}

void StallWatch::remove(std::uint64_t mark, std::uint64_t session) {
  const std::lock_guard lock(mutex_);
  const auto at = watched_.find(mark);
  if (at != watched_.end() && at->second.session == session) watched_.erase(at);
}

void StallWatch::note_control(std::uint64_t mark) {
  control_mark_.store(mark, std::memory_order_seq_cst);
  if (mark != 0) workers_.watch_gate.open();
}

std::uint64_t StallWatch::take_offender() {
  if (!any_offender_.load(std::memory_order_relaxed)) return 0;
  const std::lock_guard lock(mutex_);
  if (offenders_.empty()) return 0;
  const std::uint64_t session = offenders_.back();
  offenders_.pop_back();
  any_offender_.store(!offenders_.empty(), std::memory_order_relaxed);
  return session;
}

void StallWatch::run() {
  ::pthread_setname_np(::pthread_self(), "stall-watch");
  std::unique_lock lock(mutex_);
  for (int idle_checks = 0;;) {
    changed_.wait(lock, [this] { return stopping_ || !watched_.empty(); });
    changed_.wait_for(lock, std::chrono::nanoseconds(kPeriod), [this] { return stopping_; });
    if (stopping_) return;
    idle_checks = any_runs() ? 0 : idle_checks + 1;
    if (idle_checks >= kIdleChecks) wait_for_work(lock);
    const Nanos now = monotonic_now();
    check(control_mark_.load(std::memory_order_relaxed), control_thread_, now);
    for (WorkerCore* worker : workers_.workers) check(worker->busy_with(), worker->thread_id(), now);
  }
}

bool StallWatch::any_runs() const {
  return control_mark_.load(std::memory_order_seq_cst) != 0 ||
         !std::ranges::all_of(workers_.workers, [](const WorkerCore* worker) { return worker->is_sleeping(); });
}

void StallWatch::wait_for_work(std::unique_lock<std::mutex>& lock) {
  workers_.watch_gate.close();
  if (any_runs()) workers_.watch_gate.open();
  lock.unlock();
  workers_.watch_gate.wait();
  lock.lock();
}

bool StallWatch::allows(const Watched& watched, pid_t thread, Nanos now) {
  if (!watched.privileged) return watched.budget->charge(kPeriod, now);
  Wait& wait = waits_[thread];
  const std::uint64_t times = times_run(thread);
  wait = {times, wait.times_run == times ? wait.checks + 1 : 1};
  return wait.checks < kPrivilegedChecks;
}

// A check that finds a waiting thread charges a whole period, since it finds a wait with a probability that is
// proportional to its length.
void StallWatch::check(std::uint64_t mark, pid_t thread, Nanos now) {
  if (mark == 0 || !waits_for_pages(thread)) {
    waits_.erase(thread);
    return;
  }
  const auto at = watched_.find(mark);
  if (at == watched_.end() || allows(at->second, thread, now)) return;
  SigbusGuard::instance().revoke(at->second.session);
  if (std::ranges::find(offenders_, at->second.session) != offenders_.end()) return;
  try {
    offenders_.push_back(at->second.session);
  } catch (const std::exception&) {
    return;  // the next check tries again
  }
  any_offender_.store(true, std::memory_order_relaxed);
}

}  // namespace uroce::daemon
