#include "worker/worker_thread.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/spinlock.h"
#include "platform/clock.h"
#include "platform/log.h"
#include "platform/scheduling.h"
#include "worker/counter_rows.h"

namespace uroce::worker {
namespace {

using Workers = std::vector<DutyCycle*>;

PollPolicyConfig poll_config(const Workers& workers) {
  PollPolicyConfig config = workers.front()->worker().config().poll;
  config.wakeable = std::ranges::all_of(workers, [](DutyCycle* each) { return each->wakeable(); });
  return config;
}

std::vector<WorkerCounters*> counters_of(const Workers& workers) {
  std::vector<WorkerCounters*> all;
  for (DutyCycle* const each : workers) all.push_back(&each->worker().counters());
  return all;
}

std::vector<WorkerLatency*> latencies_of(const Workers& workers) {
  std::vector<WorkerLatency*> all;
  for (DutyCycle* const each : workers) all.push_back(&each->worker().latency());
  return all;
}

}  // namespace

void WorkerCore::note_thread() {
  const auto thread = static_cast<pid_t>(::syscall(SYS_gettid));
  thread_id_.store(thread, std::memory_order_relaxed);
  section_.note_thread(thread);
}

int WorkerCore::set_cpu(int cpu) {
  const int error = cpu < 0 ? platform::unpin() : platform::pin_to_cpu(static_cast<std::uint32_t>(cpu));
  if (error == 0) config_.cpu = cpu;
  return error;
}

WorkerThread::WorkerThread(Workers workers)
    : workers_(std::move(workers)),
      unpublished_(workers_.size(), true),
      policy_(poll_config(workers_)),
      cycle_(counters_of(workers_), latencies_of(workers_)) {
  for (DutyCycle* const each : workers_) each->step_together_with(workers_);
}

template <class Of>
bool WorkerThread::any(Of&& of) const {
  return std::ranges::any_of(workers_, [&](DutyCycle* each) { return of(*each); });
}

void WorkerThread::prepare() {
  const WorkerConfig& config = first().config();
  char name[16];
  std::snprintf(name, sizeof(name), "worker-%u", config.index);
  platform::name_thread(name);
  platform::remove_timer_slack();
  platform::set_sched_slice(platform::SchedSlice::kShort);
  for (DutyCycle* const each : workers_) {
    each->worker().note_thread();
    each->worker().set_duty_cycle_tracker(&cycle_);
  }
  if (config.cpu < 0) return;
  if (const int error = platform::pin_to_cpu(static_cast<std::uint32_t>(config.cpu)); error != 0) {
    platform::log(platform::LogLevel::kWarning,
                  "worker %u can't run on CPU %d (%s); see taskset -p for what is allowed", config.index,
                  config.cpu, std::strerror(error));
  }
}

bool WorkerThread::has_woken_programs() {
  std::uint64_t events = 0;
  for (DutyCycle* const each : workers_) events += each->worker().counters().events_sent;
  const bool sent = std::exchange(events_, events) != events;
  return sent && first().shared().core_left.load(std::memory_order_relaxed);
}

void WorkerThread::publish(Nanos now) {
  next_publish_ = now + kPublishInterval;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    if (!std::exchange(unpublished_[i], false)) continue;
    WorkerCore& core = workers_[i]->worker();
    core.section().publish(now, [&core](auto&& put) {
      each_counter(core.transport().counters(), core.counters(),
                   [&put](auto, auto, auto, std::uint64_t value) { put(value); });
    });
  }
}

bool WorkerThread::step_all(Nanos now) {
  bool worked = false;
  moved_ = 0;
  if (now >= next_publish_) publish(now);
  for (DutyCycle* const each : workers_) each->worker().section().begin(now);
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    DutyCycle& each = *workers_[i];
    const bool found_work = each.step(now);
    worked |= found_work;
    if (found_work) unpublished_[i] = true;
    moved_ += each.moved();
    // A wait of the next worker is not for memory that this one used.
    if (workers_.size() > 1) each.worker().transport().note_busy_with(0);
  }
  return worked;
}

void WorkerThread::run(const std::atomic<bool>& stop) {
  prepare();
  cycle_.resume(monotonic_now());
  while (!stop.load(std::memory_order_relaxed)) {
    const Nanos now = monotonic_now();
    cycle_.begin(now);
    const bool worked = step_all(now);
    const bool few_cores = first().shared().few_cores.load(std::memory_order_relaxed);
    if (worked) {
      cycle_.worked();
      policy_.worked(now, has_woken_programs());
      if (few_cores) yield_or_repin(now);
      continue;
    }
    const bool turns = few_cores && any([now](DutyCycle& each) { return each.worker().clients_are_yielding(now); });
    switch (policy_.idle(now, few_cores, turns)) {
      case IdleAction::kSpin: base::cpu_relax(); break;
      case IdleAction::kYield: yield(now); break;
      case IdleAction::kSleep: sleep(now, stop); break;
    }
  }
  for (DutyCycle* const each : workers_) {
    each->worker().serve_commands(monotonic_now());
    each->worker().set_duty_cycle_tracker(nullptr);
  }
}

void WorkerThread::yield_or_repin(Nanos now) {
  if (moved_ > kFewFrames) {
    ++large_steps_;
    leave_yield_mode();
  }
  repin(now);
  bool dropped = false;
  for (DutyCycle* const each : workers_) dropped |= each->worker().take_rnr_drops();
  if (dropped && policy_.should_yield_after_drop(now, true)) [[unlikely]]
    yield(now);
}

void WorkerThread::repin(Nanos now) {
  if (now < next_repin_) return;
  next_repin_ = now + kRepinInterval;
  if (std::exchange(large_steps_, 0) < kManyLargeSteps) return;
  const std::uint32_t core = first().shared().first_core.load(std::memory_order_relaxed);
  if (core != WorkerShared::kAnywhere) platform::move_to_core(core + first().config().index);
}

void WorkerThread::leave_yield_mode() {
  if (std::exchange(turns_, 0) >= kTurns) platform::set_sched_slice(platform::SchedSlice::kShort);
}

void WorkerThread::yield(Nanos now) {
  if (++turns_ == kTurns) platform::set_sched_slice(platform::SchedSlice::kUsual);
  ::sched_yield();
  const Nanos resumed = monotonic_now();
  policy_.yielded(now, resumed - now);
  cycle_.resume(resumed);
}

bool WorkerThread::may_sleep(const std::atomic<bool>& stop) {
  if (any([](DutyCycle& each) { return each.worker().work_waiting(); })) return false;
  if (stop.load(std::memory_order_seq_cst)) return false;
  return std::ranges::all_of(workers_, [](DutyCycle* each) { return each->arm_wake(); });
}

void WorkerThread::sleep(Nanos now, const std::atomic<bool>& stop) {
  leave_yield_mode();
  publish(now);
  for (DutyCycle* const each : workers_) each->worker().announce_sleep();
  if (may_sleep(stop)) {
    for (DutyCycle* const each : workers_) each->worker().section().sleep(now);
    Nanos timer = kNever;
    for (DutyCycle* const each : workers_) timer = std::min(timer, each->worker().until_timer(now));
    Nanos limit = policy_.nap(timer);
    if (any([](DutyCycle& each) { return each.port_refuses(); })) limit = std::min(limit, kBackpressureNap);
    if (limit != 0) first().wait(limit);
    const Nanos resumed = monotonic_now();
    policy_.slept(resumed - now);
    cycle_.resume(resumed);
    for (DutyCycle* const each : workers_) each->worker().note_wake_up(now, resumed);
  }
  for (DutyCycle* const each : workers_) {
    each->disarm_wake();
    each->worker().end_sleep();
  }
}

}  // namespace uroce::worker
