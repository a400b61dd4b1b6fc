#include "control/diagnosis/stall_watch.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>

#include "control/session/session.h"
#include "mapping/helper_thread.h"
#include "mapping/sigbus_guard.h"
#include "mapping/thread_state.h"
#include "platform/clock.h"
#include "platform/log.h"

namespace uroce::control {

void StallWatch::start() {
  stopping_ = false;
  control_thread_ = static_cast<pid_t>(::syscall(SYS_gettid));
  if (!mapping::start_helper_thread([this] { run(); }, &thread_)) {
    platform::log(platform::LogLevel::kWarning,
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
    check(lock, control_thread_,
          [this] { return proto::BusyWith{.mark = control_mark_.load(std::memory_order_relaxed)}; });
    for (worker::WorkerCore* worker : workers_.workers) {
      check(lock, worker->thread_id(), [worker] { return worker->busy_with(); });
    }
  }
}

bool StallWatch::any_runs() const {
  return control_mark_.load(std::memory_order_seq_cst) != 0 ||
         !std::ranges::all_of(workers_.workers,
                              [](const worker::WorkerCore* worker) { return worker->is_sleeping(); });
}

void StallWatch::wait_for_work(std::unique_lock<std::mutex>& lock) {
  workers_.watch_gate.close();
  if (any_runs()) workers_.watch_gate.open();
  lock.unlock();
  workers_.watch_gate.wait();
  lock.lock();
}

// The pages that are copied were present when the copy began. If one is absent, its owner has taken it away, and
// the worker waits for it. The device that has only the other half charges nobody.
std::uint64_t StallWatch::cause(const proto::BusyWith& with, const mapping::Pagemap& pages) {
  if (with.source_bytes == 0 || with.mark == with.lender) return with.mark;
  return pages.look(with.source, with.source_bytes) == mapping::Pages::kAbsent ? with.lender : with.mark;
}

// The cause is found once for each wait: what happens to pages afterwards has not caused it. A thread that waits,
// and has not run from before that was seen until the cause was found, is in the same wait all the time.
template <class Look>
const StallWatch::Wait* StallWatch::find_wait(pid_t thread, Look busy_with) {
  const auto none = [&] { return waits_.erase(thread), nullptr; };
  if (const proto::BusyWith with = busy_with(); (with.mark | with.lender) == 0) return none();
  if (!mapping::waits_for_pages(thread)) return none();
  const std::uint64_t times = mapping::times_run(thread);
  if (!mapping::waits_for_pages(thread)) return none();
  Wait& wait = waits_[thread];
  if (times == 0 || wait.times_run != times) {
    wait = {times, cause(busy_with(), mapping::Pagemap::own()),
            times == 0 ? wait.checks : 0};  // 0: unknown, as if the same
    if (mapping::times_run(thread) != times) return none();
  }
  ++wait.checks;
  return &wait;
}

// A check that finds a waiting thread charges a whole period, since it finds a wait with a probability that is
// proportional to its length; or the time that it took, if it had to wait itself. It looks without the lock.
template <class Look>
void StallWatch::check(std::unique_lock<std::mutex>& lock, pid_t thread, Look busy_with) {
  lock.unlock();
  const Nanos begin = monotonic_now();
  const Wait* const wait = find_wait(thread, busy_with);
  lock.lock();
  const Nanos now = monotonic_now();
  if (wait != nullptr && wait->cause != 0) charge(*wait, std::max(kPeriod, now - begin), now);
}

void StallWatch::charge(const Wait& wait, Nanos span, Nanos now) {
  const auto at = watched_.find(wait.cause);
  if (at == watched_.end()) return;
  const Watched& watched = at->second;
  const bool allowed = watched.privileged ? wait.checks < kPrivilegedChecks : watched.budget->charge(span, now);
  if (allowed) return;
  mapping::SigbusGuard::instance().revoke(watched.session);
  if (std::ranges::find(offenders_, watched.session) != offenders_.end()) return;
  try {
    offenders_.push_back(watched.session);
  } catch (const std::exception&) {
    return;  // the next check tries again
  }
  any_offender_.store(true, std::memory_order_relaxed);
}

}  // namespace uroce::control
