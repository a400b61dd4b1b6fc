#include "control/state/state.h"

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "control/state/worker_commands.h"
#include "platform/clock.h"
#include "platform/log.h"

namespace uroce::control {
namespace {

// More than one session can have; bounds the memory of the pool.
constexpr std::uint32_t kMaxPdNumbers = 4 * kMaxPd;

}  // namespace

ControlState::ControlState(Process& process, const DaemonConfig& config, const net::DeviceInfo& device,
                           worker::WorkerShared& workers, memory::Table& memory, std::uint64_t seed)
    : process_(process),
      config_(config),
      workers_(workers),
      memory_(memory),
      port_(config, device, static_cast<std::uint32_t>(workers.workers.size())),
      stall_watch_(workers),
      qp_counts_(workers.workers.size()),
      pd_ids_(1, kMaxPdNumbers),
      cq_ids_(0, config.max_cqs),
      srq_ids_(1, config.max_srqs),
      ah_ids_(1, kMaxAh),
      started_(monotonic_now()) {
  for (std::uint32_t i = 0; i < workers.workers.size(); ++i) qpns_.emplace_back(i, seed + i);
  for (const UserGrant& grant : config.grants) {
    GrantedShare& share = grants_[grant.uid];
    share.weight = grant.weight;
    share.limit.kbps = grant.rate_mbps * 1000;
  }
}

std::uint32_t ControlState::choose_worker() const {
  return static_cast<std::uint32_t>(std::ranges::min_element(qp_counts_) - qp_counts_.begin());
}

// ---------------------------------------------------------------- sessions

Session* ControlState::open_session(platform::Peer peer, UniqueFd socket) {
  const std::shared_ptr<mapping::StallBudget> budget = process_.users().stall_budget(peer.uid);
  const bool privileged = is_privileged(peer.uid);
  if (budget->closer().is_full() && !privileged) {
    quotas().refuse(
        "user " + std::to_string(peer.uid) + " gets no new session: " + std::to_string(budget->closer().backlog()) +
        " descriptors that its programs passed do not close (sockets with SO_LINGER, or a file system that "
        "does not answer); end those programs");
    process_.users().close_refused(peer.uid, std::move(socket));
    return nullptr;
  }
  // Descriptors: socket, process, events, and one for each worker.
  Charge charge = quotas().charge(peer.uid, {.sessions = 1, .descriptors = 3u + worker_count()});
  if (!charge) {
    process_.users().close_refused(peer.uid, std::move(socket));
    return nullptr;
  }
  const std::uint64_t id = process_.new_session();
  auto& slot = sessions_[id];
  slot = std::make_unique<Session>(id, std::move(peer), std::move(socket), std::move(charge), config_.hugepages,
                                   budget);
  slot->privileged = privileged;
  stall_watch_.add(proto::mark_of_session(id), *slot);
  return slot.get();
}

Session* ControlState::session(std::uint64_t id) const {
  const auto it = sessions_.find(id);
  return it == sessions_.end() ? nullptr : it->second.get();
}

std::uint32_t ControlState::polling_sessions() const {
  return static_cast<std::uint32_t>(
      std::ranges::count_if(sessions_, [](const auto& entry) { return entry.second->connected_qps != 0; }));
}

proto::UserShare ControlState::share_of(uid_t user) {
  const auto it = grants_.find(user);
  if (it == grants_.end()) return {};
  return {it->second.weight, it->second.limit.kbps == 0 ? nullptr : &it->second.limit};
}

std::shared_ptr<const PdNumber> ControlState::new_pd() {
  const auto number = pd_ids_.allocate();
  return number ? std::make_shared<const PdNumber>(pd_ids_, *number) : nullptr;
}

// ---------------------------------------------------------------- QP numbers

std::optional<Qpn> ControlState::allocate_qpn(std::uint32_t worker, const platform::Tenant& owner) {
  const auto qpn = qpns_[worker].allocate();
  if (qpn) set_qp_owner(*qpn, owner);
  return qpn;
}

void ControlState::release_qpn(std::uint32_t worker, Qpn qpn) {
  qp_owners_.erase(qpn.value);
  qpns_[worker].release(qpn);
}

bool ControlState::owns_qp(const platform::Tenant& tenant, Qpn qpn) const {
  const auto it = qp_owners_.find(qpn.value);
  return it != qp_owners_.end() && it->second == tenant;
}

// ---------------------------------------------------------------- XRC domains

std::shared_ptr<XrcDomain> ControlState::find_xrc_domain(dev_t device, ino_t inode) const {
  const auto it = xrc_domains_.find({device, inode});
  return it == xrc_domains_.end() ? nullptr : it->second.lock();
}

std::shared_ptr<XrcDomain> ControlState::new_xrc_domain() {
  auto domain = std::make_shared<XrcDomain>();
  domain->id = ++last_xrc_domain_;
  return domain;
}

void ControlState::measure_latency(bool on) {
  measures_latency_ = on;
  on_all_workers(worker_commands::MeasureLatency{on});
}

void ControlState::record_events(bool on) {
  records_events_ = on;
  worker_commands::RecordEvents command;
  if (on) command.memory.resize(worker_count());
  for (proto::QpEventLog::Entries& each : command.memory) each = proto::QpEventLog::allocate();
  on_all_workers(command);
}

void ControlState::publish_xrc_domain(const std::shared_ptr<XrcDomain>& domain) {
  std::erase_if(xrc_domains_, [](const auto& entry) { return entry.second.expired(); });
  xrc_domains_[{domain->device, domain->inode}] = domain;
}

}  // namespace uroce::control
