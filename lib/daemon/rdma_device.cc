#include "daemon/rdma_device.h"

#include <grp.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "admin/counters.h"
#include "control/link/sysfs_tree.h"
#include "control/machine/run_dir.h"
#include "control/state/worker_commands.h"
#include "platform/clock.h"
#include "platform/log.h"

namespace uroce::daemon {

using control::DaemonConfig;

namespace {

std::uint64_t seed_or_random(std::uint64_t seed) {
  if (seed != 0) return seed;
  if (::getrandom(&seed, sizeof(seed), 0) != sizeof(seed)) seed = monotonic_now();
  return seed;
}

net::LinkConfig link_config(const DaemonConfig& config, const net::DeviceInfo& device) {
  net::LinkConfig link;
  link.mac = device.mac;
  link.mtu = config.mtu != 0 ? config.mtu : device.mtu;
  link.addresses = config.addresses;
  link.gateway4 = config.gateway4;
  link.gateway6 = config.gateway6;
  return link;
}

worker::WorkerConfig worker_config(const DaemonConfig& config, const net::DeviceInfo& device, std::uint32_t index,
                                   std::uint32_t workers, std::uint64_t seed) {
  worker::WorkerConfig worker;
  worker.index = index;
  worker.workers = workers;
  worker.transport.max_qps = config.max_qps;
  worker.transport.max_cqs = config.max_cqs;
  worker.transport.max_srqs = config.max_srqs;
  worker.transport.max_ahs = control::kMaxAh;
  worker.transport.max_attachments = control::kMaxAttachments;
  worker.transport.port_mtu = 128u << control::path_mtu_of_link(link_config(config, device).mtu);
  worker.transport.max_frame = control::max_frame_of_link(link_config(config, device).mtu);
  worker.transport.receive_ring_bytes = config.receive_ring_bytes;
  worker.transport.ecn = config.ecn;
  worker.transport.min_early_retry_delay = config.early_retry_us * kMicrosecond;
  worker.transport.offload_ip_checksum = device.checksum_offload;
  worker.transport.mac = device.mac;
  worker.transport.seed = seed + index;
  worker.poll.busy = config.poll_mode == control::PollMode::kBusy;
  worker.poll.idle_alone = config.idle_us * kMicrosecond;
  worker.poll.idle_shared = config.idle_shared_us * kMicrosecond;
  if (!config.cpus.empty()) worker.cpu = config.cpus[index % config.cpus.size()];
  worker.frame_bytes = link_config(config, device).mtu + 64;
  return worker;
}

bool valid_name(const std::string& name) {
  constexpr std::size_t kLongest = 31;
  if (name.empty() || name.size() > kLongest || name.front() == '.' || name.front() == '-') return false;
  return name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") ==
         std::string::npos;
}

}  // namespace

absl::Status check_config(const DaemonConfig& config, std::size_t workers) {
  if (!valid_name(config.name)) {
    return absl::InvalidArgumentError("\"" + config.name +
                                      "\" is not a device name; use up to 31 letters, digits, '_', '-' and '.'");
  }
  if (config.addresses.empty()) {
    return absl::InvalidArgumentError("the port has no address; give at least one with --ip, such as 192.0.2.1/24");
  }
  if (workers > UROCE_MAX_WORKERS) {
    return absl::InvalidArgumentError("at most " + std::to_string(UROCE_MAX_WORKERS) +
                                      " workers; use fewer --workers");
  }
  const std::string& group = config.socket_group;
  const bool by_default = group.empty() || group == DaemonConfig{}.socket_group;
  if (!by_default && ::getgrnam(group.c_str()) == nullptr) {
    return absl::NotFoundError("there is no group " + group +
                               "; make it (groupadd), or give another with --socket-group");
  }
  return absl::OkStatus();
}

RdmaDevice::RdmaDevice(control::Process& process, const DaemonConfig& config, const net::DeviceInfo& port,
                       std::uint32_t workers)
    : config_(config),
      seed_(seed_or_random(config.seed)),
      memory_(config.max_mrs, seed_ ^ 0x6d656d6f7279u),
      link_(link_config(config_, port)) {
  for (std::uint32_t i = 0; i < workers; ++i) {
    cores_.push_back(
        std::make_unique<worker::WorkerCore>(worker_config(config_, port, i, workers, seed_ ^ 0x70736e), shared_,
                                             memory_, i == worker::kLinkWorker ? &link_ : nullptr));
  }
  if (config_.netdev_port != nullptr) {
    netdev_ =
        std::make_unique<worker::NetdevPort>(*config_.netdev_port, port.mac, cores_.front()->config().frame_bytes);
    cores_[worker::kLinkWorker]->set_netdev(netdev_.get());
  }
  conductor_ = std::make_unique<Conductor>(process, config_, port, shared_, memory_, seed_ ^ 0x71706e);
  conductor_->state().measure_latency(config_.latency);
  conductor_->state().record_events(config_.events);
}

RdmaDevice::~RdmaDevice() {
  stop_netdev();
  if (!opened_) return;
  ::unlink(socket_path().c_str());
  control::remove_sysfs_tree(config_.run_dir, config_.name);
}

absl::Status RdmaDevice::start_netdev() {
  if (netdev_ == nullptr || netdev_->start([this] { cores_[worker::kLinkWorker]->wake(); }))
    return absl::OkStatus();
  return absl::ResourceExhaustedError("no thread or file descriptor is free for the interface " +
                                      config_.netdev_port->name() +
                                      "; raise the limits (ulimit -u, -n, -v), or leave out --netdev");
}

void RdmaDevice::stop_netdev() {
  if (netdev_ != nullptr) netdev_->stop();
}

void RdmaDevice::reconfigure(const DaemonConfig& next) {
  control::LinkControl& link = conductor_->link();
  const auto change = [](const auto& from, const auto& what, const auto& act) {
    for (const net::InterfaceAddress& own : from) {
      if (std::ranges::find(what, own) == what.end()) act(own);
    }
  };
  change(config_.addresses, next.addresses, [&](const auto& own) { link.remove_address(own.address); });
  change(next.addresses, config_.addresses, [&](const auto& own) { link.add_address(own); });
  config_.addresses = next.addresses;
  if (next.gateway4 != config_.gateway4 || next.gateway6 != config_.gateway6) {
    config_.gateway4 = next.gateway4, config_.gateway6 = next.gateway6;
    link.set_gateways(next.gateway4, next.gateway6);
  }
  if (next.latency != config_.latency) {
    config_.latency = next.latency;
    conductor_->state().measure_latency(next.latency);
  }
  if (next.events != config_.events) {
    config_.events = next.events;
    conductor_->state().record_events(next.events);
  }
  if (next.cpus == config_.cpus) return;
  config_.cpus = next.cpus;
  for (std::size_t i = 0; i < cores_.size(); ++i) {
    control::worker_commands::SetCpu command{config_.cpus.empty() ? -1 : config_.cpus[i % config_.cpus.size()]};
    cores_[i]->call(command);
    if (command.error == 0) continue;
    platform::log(platform::LogLevel::kWarning,
                  "worker %zu can't run on CPU %d (%s); see taskset -p for what is allowed", i, command.cpu,
                  std::strerror(command.error));
  }
}

std::string RdmaDevice::socket_path() const { return config_.run_dir + "/" + config_.name + ".sock"; }

absl::Status RdmaDevice::take_lock() {
  const std::string path = config_.run_dir + "/" + config_.name + ".lock";
  UniqueFd file;
  if (absl::Status status = control::open_run_file(path, file); !status.ok()) return status;
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    return absl::AlreadyExistsError("a daemon named " + config_.name + " is already running in " + config_.run_dir +
                                    "; stop it, or use another --name");
  }
  lock_ = std::move(file);
  return absl::OkStatus();
}

void RdmaDevice::open_counters() {
  const std::vector<admin::CounterValue> of_workers = admin::worker_counters({});
  const std::vector<admin::CounterValue> of_control = admin::control_counters(conductor_->admin(), {});
  const auto names = [](const std::vector<admin::CounterValue>& values) {
    std::vector<control::CountersFile::Name> out;
    for (const admin::CounterValue& each : values) out.push_back({each.group, each.name, each.kind});
    return out;
  };
  const absl::Status status =
      counters_.make(config_.run_dir, config_.name, cores_.size(), names(of_workers), names(of_control));
  if (!status.ok()) {
    platform::log(platform::LogLevel::kWarning, "%s: %s", config_.name.c_str(),
                  std::string(status.message()).c_str());
    return;
  }
  for (std::size_t i = 0; i < cores_.size(); ++i) {
    cores_[i]->section().open(counters_.section_of_worker(i), of_workers.size());
  }
  conductor_->command_times().section().open(counters_.section_of_control(), of_control.size());
}

absl::Status RdmaDevice::open(ControlLoop& loop) {
  if (absl::Status status = take_lock(); !status.ok()) return status;
  opened_ = true;
  if (absl::Status status = control::write_sysfs_tree(config_.run_dir, config_.name, conductor_->state().port());
      !status.ok()) {
    return status;
  }
  open_counters();
  return loop.listen(*conductor_, socket_path());
}

}  // namespace uroce::daemon
