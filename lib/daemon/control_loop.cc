#include "daemon/control_loop.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <string>

#include "daemon/conductor.h"
#include "mapping/sigbus_guard.h"
#include "platform/clock.h"

namespace uroce::daemon {
namespace {

constexpr unsigned kDeviceShift = 56;
constexpr std::uint64_t kTagMask = (std::uint64_t{1} << kDeviceShift) - 1;

std::uint64_t device_of(const epoll_event& event) { return event.data.u64 >> kDeviceShift; }

}  // namespace

ControlLoop::ControlLoop() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {}

absl::Status ControlLoop::listen(Conductor& conductor, const std::string& path) {
  if (!epoll_.valid()) return absl::ErrnoToStatus(errno, "epoll_create1");
  if (devices_.size() == kMaxDevices) return absl::ResourceExhaustedError("at most 256 devices; use fewer");
  const std::uint64_t device = devices_.size();
  absl::Status status = conductor.listen(path, {epoll_.get(), device << kDeviceShift});
  if (status.ok()) devices_.push_back(&conductor);
  return status;
}

void ControlLoop::take_truncations() {
  const auto tell = [this](std::uint64_t session, void (Conductor::*what)(std::uint64_t)) {
    for (Conductor* const device : devices_) (device->*what)(session);
  };
  while (const std::uint64_t offender = mapping::SigbusGuard::instance().take_offender()) {
    tell(offender, &Conductor::close_truncated);
  }
  while (const std::uint64_t loser = mapping::SigbusGuard::instance().take_loser())
    tell(loser, &Conductor::note_loss);
}

// Reports to the service manager only when each worker has run a command that was posted since the last report. The
// commands are not waited for: the control thread goes on if a worker does not.
void ControlLoop::check_alive(Nanos now, const ProcessHooks& hooks) {
  if (!hooks.on_alive || now < next_alive_) return;
  if (!std::ranges::all_of(devices_, [](const Conductor* device) { return device->pings_answered(); })) return;
  if (pinged_) {
    hooks.on_alive();
    next_alive_ = now + hooks.alive_interval;
  }
  pinged_ = true;
  for (Conductor* const device : devices_) device->ping_workers();
}

void ControlLoop::dispatch(std::span<epoll_event> events) {
  // One after another as they came, but those of a device together: its conductor chooses between its users.
  std::ranges::stable_sort(events, {}, device_of);
  while (!events.empty()) {
    const std::uint64_t device = device_of(events.front());
    const auto end = std::ranges::find_if(events, [&](const auto& each) { return device_of(each) != device; });
    const auto count = static_cast<std::size_t>(end - events.begin());
    for (epoll_event& event : events.first(count)) event.data.u64 &= kTagMask;
    devices_[device]->serve_events(events.first(count));
    events = events.subspan(count);
  }
}

void ControlLoop::serve(const std::atomic<bool>& stop, const ProcessHooks& hooks,
                        const std::function<void()>& on_turn) {
  ::prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  for (Conductor* const device : devices_) device->command_times().section().note_thread(::gettid());
  while (!stop.load(std::memory_order_relaxed)) {
    take_truncations();
    Nanos due = kNever;
    for (Conductor* const device : devices_) due = std::min(due, device->advance(monotonic_now()));
    const Nanos now = monotonic_now();
    check_alive(now, hooks);
    if (on_turn) on_turn();
    const Nanos limit = due > now ? due - now : 0;
    for (Conductor* const device : devices_) device->command_times().section().sleep(now);
    epoll_event events[512];
    const int n = ::epoll_wait(epoll_.get(), events, std::size(events),
                               static_cast<int>((limit + kMillisecond - 1) / kMillisecond));
    const Nanos woken = monotonic_now();
    for (Conductor* const device : devices_) device->command_times().section().begin(woken);
    dispatch({events, static_cast<std::size_t>(std::max(n, 0))});
  }
}

}  // namespace uroce::daemon
