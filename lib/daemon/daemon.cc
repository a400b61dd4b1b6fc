#include "daemon/daemon.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "control/machine/run_dir.h"
#include "control/state/process.h"
#include "daemon/rdma_device.h"
#include "mapping/sigbus_guard.h"
#include "platform/log.h"
#include "proto/state/local_devices.h"

namespace uroce::daemon {

using platform::log;
using platform::LogLevel;

namespace {

/// If there is one more, none of those before was refused.
absl::Status check_descriptors() {
  const UniqueFd one_more(::eventfd(0, EFD_CLOEXEC));
  if (one_more.valid()) return absl::OkStatus();
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return absl::ResourceExhaustedError(
      "no file descriptor is free for clients; raise the limit (ulimit -Hn), which is " +
      std::to_string(limit.rlim_cur) + ", or use fewer devices and workers");
}

/// What a process does once, before it serves clients.
void prepare_process() {
  ::signal(SIGPIPE, SIG_IGN);
  mapping::SigbusGuard::instance().install();
  if (!mapping::SigbusGuard::instance().guards_holes()) {
    log(LogLevel::kInfo,
        "userfaultfd(2) is not allowed: pages of a program's file that do not exist when a work request uses them "
        "count as memory of this process");
  }
}

std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

void log_reload(const control::Reloaded& outcome) {
  if (!outcome.error.empty()) {
    log(LogLevel::kWarning, "reload: %s; nothing has changed", outcome.error.c_str());
    return;
  }
  log(LogLevel::kInfo, "reload: changed: %s", outcome.changed.empty() ? "nothing" : list(outcome.changed).c_str());
  if (outcome.waiting.empty()) return;
  log(LogLevel::kWarning, "reload: these take effect with a restart: %s", list(outcome.waiting).c_str());
}

}  // namespace

void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

struct Daemon::Impl {
  Impl(const control::DaemonConfig& config, std::uint32_t count)
      : run_dir(config.run_dir), workers(count), process(config, count), local(count) {}

  std::string run_dir;
  std::uint32_t workers;
  control::Process process;
  ControlLoop loop;
  std::vector<proto::LocalDevices> local;  // by thread
  std::vector<std::unique_ptr<RdmaDevice>> devices;
};

Daemon::Daemon(const control::DaemonConfig& config, std::uint32_t workers)
    : impl_(std::make_unique<Impl>(config, workers)) {}

Daemon::~Daemon() = default;

void Daemon::add(const control::DaemonConfig& config, const net::DeviceInfo& port) {
  auto& devices = impl_->devices;
  devices.push_back(std::make_unique<RdmaDevice>(impl_->process, config, port, impl_->workers));
  for (std::uint32_t i = 0; i < impl_->workers; ++i) {
    worker::WorkerCore& added = worker(devices.size() - 1, i);
    if (port.switched) added.transport().join(impl_->local[i]);
    if (devices.size() > 1) added.sleep_with(worker(0, i));
  }
}

absl::Status Daemon::open() {
  for (const auto& device : impl_->devices) {
    if (absl::Status status = device->check(); !status.ok()) return status;
  }
  if (absl::Status status = check_descriptors(); !status.ok()) return status;  // of ports and workers
  prepare_process();
  for (const auto& device : impl_->devices) {
    const std::string& run_dir = device->conductor().state().config().run_dir;
    if (absl::Status status = control::make_run_dir(run_dir, ::geteuid()); !status.ok()) return status;
    if (absl::Status status = device->start_netdev(); !status.ok()) return status;
    if (absl::Status status = device->open(impl_->loop); !status.ok()) return status;
  }
  if (absl::Status status = impl_->process.open_census(impl_->run_dir + "/presence"); !status.ok()) return status;
  for (const auto& device : impl_->devices) device->set_threaded(true);
  return check_descriptors();
}

worker::WorkerCore& Daemon::worker(std::size_t device, std::uint32_t index) {
  return impl_->devices[device]->worker(index);
}

void Daemon::serve(const std::atomic<bool>& stop, const ProcessHooks& hooks) {
  const platform::LogWriter writer;
  if (hooks.on_ready) hooks.on_ready();
  for (const auto& device : impl_->devices) device->conductor().state().stall_watch().start();
  if (hooks.reread) impl_->process.set_reload([this, &hooks] { return reload(hooks); });
  impl_->process.set_settings(hooks.settings);
  impl_->loop.serve(stop, hooks, [&] {
    if (hooks.reload != nullptr && hooks.reload->exchange(false)) log_reload(impl_->process.reload());
  });
  impl_->process.set_reload(nullptr);
  impl_->process.set_settings(nullptr);
  for (const auto& device : impl_->devices) {
    control::ControlState& state = device->conductor().state();
    log(LogLevel::kInfo, "%s: ends; open sessions: %zu", state.config().name.c_str(), state.sessions().size());
  }
  for (const auto& device : impl_->devices) {
    device->stop_netdev();
    device->conductor().state().stall_watch().stop();
  }
}

control::Reloaded Daemon::reload(const ProcessHooks& hooks) {
  Reread next = hooks.reread();
  if (!next.outcome.error.empty()) return std::move(next.outcome);
  for (std::size_t i = 0; i < next.devices.size(); ++i) impl_->devices[i]->reconfigure(next.devices[i]);
  if (!next.devices.empty()) impl_->process.quotas().set_limits(next.devices.front().limits);
  return std::move(next.outcome);
}

void Daemon::close() {
  for (const auto& device : impl_->devices) device->conductor().shut_down();
  for (const auto& device : impl_->devices) device->set_threaded(false);
}

}  // namespace uroce::daemon
