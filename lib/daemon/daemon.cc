#include "daemon/daemon.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>

#include "control/run_dir.h"
#include "control/sysfs_tree.h"
#include "daemon/conductor.h"
#include "mapping/sigbus_guard.h"
#include "platform/log.h"

namespace uroce::daemon {
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

WorkerConfig worker_config(const DaemonConfig& config, const net::DeviceInfo& device, std::uint32_t index,
                           std::uint32_t workers, std::uint64_t seed) {
  WorkerConfig worker;
  worker.index = index;
  worker.workers = workers;
  worker.transport.max_qps = config.max_qps;
  worker.transport.max_cqs = config.max_cqs;
  worker.transport.max_srqs = config.max_srqs;
  worker.transport.max_ahs = kMaxAh;
  worker.transport.max_attachments = kMaxAttachments;
  worker.transport.port_mtu = 128u << path_mtu_of_link(link_config(config, device).mtu);
  worker.transport.max_frame = max_frame_of_link(link_config(config, device).mtu);
  worker.transport.receive_ring_bytes = config.receive_ring_bytes;
  worker.transport.ecn = config.ecn;
  worker.transport.min_early_retry_delay = config.early_retry_us * kMicrosecond;
  worker.transport.offload_ip_checksum = device.checksum_offload;
  worker.transport.mac = device.mac;
  worker.transport.seed = seed + index;
  worker.poll.busy = config.poll_mode == PollMode::kBusy;
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

void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

struct Daemon::Impl {
  Impl(const DaemonConfig& c, const net::DeviceInfo& device, std::uint32_t workers)
      : config(c),
        seed(seed_or_random(c.seed)),
        memory(c.max_mrs, seed ^ 0x6d656d6f7279u),
        link(link_config(config, device)) {
    for (std::uint32_t i = 0; i < workers; ++i) {
      cores.push_back(std::make_unique<WorkerCore>(worker_config(config, device, i, workers, seed ^ 0x70736e),
                                                   shared, memory, i == kLinkWorker ? &link : nullptr));
    }
    conductor = std::make_unique<Conductor>(config, device, shared, memory, seed ^ 0x71706e);
  }

  absl::Status take_lock();

  DaemonConfig config;
  std::uint64_t seed;
  memory::Table memory;
  net::LinkStack link;
  WorkerShared shared;
  std::vector<std::unique_ptr<WorkerCore>> cores;
  std::unique_ptr<Conductor> conductor;
  PollerCensus census;
  UniqueFd lock;
  bool opened = false;
};

absl::Status Daemon::Impl::take_lock() {
  const std::string path = config.run_dir + "/" + config.name + ".lock";
  UniqueFd file;
  if (absl::Status status = open_run_file(path, file); !status.ok()) return status;
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    return absl::AlreadyExistsError("a daemon named " + config.name + " is already running in " + config.run_dir +
                                    "; stop it, or use another --name");
  }
  lock = std::move(file);
  return absl::OkStatus();
}

Daemon::Daemon(const DaemonConfig& config, const net::DeviceInfo& device, std::uint32_t workers)
    : impl_(std::make_unique<Impl>(config, device, workers)) {}

Daemon::~Daemon() {
  if (!impl_->opened) return;
  ::unlink((impl_->config.run_dir + "/" + impl_->config.name + ".sock").c_str());
  remove_sysfs_tree(impl_->config.run_dir, impl_->config.name);
}

absl::Status Daemon::open() {
  const DaemonConfig& config = impl_->config;
  if (!valid_name(config.name)) {
    return absl::InvalidArgumentError("\"" + config.name +
                                      "\" is not a device name; use up to 31 letters, digits, '_', '-' and '.'");
  }
  if (config.addresses.empty()) {
    return absl::InvalidArgumentError("the port has no address; give at least one with --ip, such as 192.0.2.1/24");
  }
  if (impl_->cores.size() > UROCE_MAX_WORKERS) {
    return absl::InvalidArgumentError("at most " + std::to_string(UROCE_MAX_WORKERS) +
                                      " workers; use fewer --workers");
  }
  ::signal(SIGPIPE, SIG_IGN);
  raise_descriptor_limit();
  SigbusGuard::instance().install();
  if (!SigbusGuard::instance().guards_holes()) {
    log(LogLevel::kInfo,
        "userfaultfd(2) is not allowed: pages of a program's file that do not exist when a work request uses them "
        "count as memory of this process");
  }
  if (absl::Status status = make_run_dir(config.run_dir); !status.ok()) return status;
  if (absl::Status status = impl_->take_lock(); !status.ok()) return status;
  impl_->opened = true;
  if (absl::Status status = impl_->census.open(config.run_dir + "/presence"); !status.ok()) return status;
  if (absl::Status status = write_sysfs_tree(config.run_dir, config.name, impl_->conductor->state().port());
      !status.ok()) {
    return status;
  }
  if (absl::Status status = impl_->conductor->listen(config.run_dir + "/" + config.name + ".sock"); !status.ok()) {
    return status;
  }
  for (auto& core : impl_->cores) core->set_threaded(true);
  return absl::OkStatus();
}

WorkerCore& Daemon::worker(std::uint32_t index) { return *impl_->cores[index]; }

void Daemon::serve(const std::atomic<bool>& stop) {
  const LogWriter writer;
  if (impl_->config.on_ready) impl_->config.on_ready();
  impl_->conductor->state().stall_watch().start();
  impl_->conductor->serve(stop, &impl_->census);
  impl_->conductor->state().stall_watch().stop();
}

void Daemon::close() {
  impl_->conductor->shut_down();
  for (auto& core : impl_->cores) core->set_threaded(false);
}

}  // namespace uroce::daemon
