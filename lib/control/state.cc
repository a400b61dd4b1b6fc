#include "control/state.h"

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "platform/clock.h"
#include "platform/log.h"

namespace uroce::daemon {
namespace {

// More than one session can have; bounds the memory of the pool.
constexpr std::uint32_t kMaxPdNumbers = 4 * kMaxPd;

}  // namespace

ControlState::ControlState(const DaemonConfig& config, const net::DeviceInfo& device, WorkerShared& workers,
                           memory::Table& memory, std::uint64_t seed)
    : config_(config),
      workers_(workers),
      memory_(memory),
      port_(config, device, static_cast<std::uint32_t>(workers.workers.size())),
      quotas_(config.limits, capacity_of(config, static_cast<std::uint32_t>(workers.workers.size()))),
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

Session* ControlState::open_session(Peer peer, UniqueFd socket) {
  User& user = user_of(peer.uid);
  count_closing(peer.uid, user);
  const bool privileged = is_privileged(peer.uid);
  if (user.stall_budget->closer().is_full() && !privileged) {
    quotas_.refuse(
        "user " + std::to_string(peer.uid) +
        " gets no new session: " + std::to_string(user.stall_budget->closer().backlog()) +
        " descriptors that its programs passed do not close (sockets with SO_LINGER, or a file system that "
        "does not answer); end those programs");
    close_refused(peer.uid, user, std::move(socket));
    return nullptr;
  }
  // Descriptors: socket, process, events, and one for each worker.
  Charge charge = quotas_.charge(peer.uid, {.sessions = 1, .descriptors = 3u + worker_count()});
  if (!charge) {
    close_refused(peer.uid, user, std::move(socket));
    return nullptr;
  }
  const std::uint64_t id = ++last_session_;
  auto& slot = sessions_[id];
  slot = std::make_unique<Session>(id, std::move(peer), std::move(socket), std::move(charge), config_.hugepages,
                                   user.stall_budget);
  if (privileged) slot->page_stall_budget = privileged_page_stalls_;
  stall_watch_.add(proto::mark_of_session(id), id, slot->page_stall_budget);
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

ControlState::User& ControlState::user_of(uid_t uid) {
  const Nanos now = monotonic_now();
  // A user without sessions whose budget is full again needs no entry.
  std::erase_if(users_, [&](const auto& entry) {
    StallBudget& budget = *entry.second.stall_budget;
    return entry.first != uid && entry.second.stall_budget.use_count() == 1 && budget.is_full(now) &&
           budget.closer().backlog() == 0;
  });
  return users_[uid];
}

void ControlState::count_closing(uid_t uid, User& user) {
  StallBudget& budget = *user.stall_budget;
  const std::uint64_t threads = budget.stuck.load(), descriptors = budget.closer().backlog() + threads;
  const Usage& counted = user.closing.amount();
  if (counted.descriptors == descriptors && counted.threads == threads) return;
  user.closing =
      descriptors == 0 ? Charge() : quotas_.record(uid, {.descriptors = descriptors, .threads = threads});
}

void ControlState::count_closing(uid_t uid) {
  if (const auto it = users_.find(uid); it != users_.end()) count_closing(uid, it->second);
}

void ControlState::count_closing() {
  for (auto& [uid, user] : users_) count_closing(uid, user);
}

// Closed here unless a message waits in it. A user that fills its budget with such sockets gets no further
// descriptors of the daemon that way.
void ControlState::close_refused(uid_t uid, User& user, UniqueFd socket) {
  if (!socket.valid() || !Closer::holds_messages(socket.get())) return;
  if (!quotas_.has_room(uid, {.descriptors = 1})) return;
  user.stall_budget->closer().close_socket(std::move(socket));
  count_closing(uid, user);
}

std::shared_ptr<const PdNumber> ControlState::new_pd() {
  const auto number = pd_ids_.allocate();
  return number ? std::make_shared<const PdNumber>(pd_ids_, *number) : nullptr;
}

// ---------------------------------------------------------------- QP numbers

std::optional<Qpn> ControlState::allocate_qpn(std::uint32_t worker, const Tenant& owner) {
  const auto qpn = qpns_[worker].allocate();
  if (qpn) set_qp_owner(*qpn, owner);
  return qpn;
}

void ControlState::release_qpn(std::uint32_t worker, Qpn qpn) {
  qp_owners_.erase(qpn.value);
  qpns_[worker].release(qpn);
}

bool ControlState::owns_qp(const Tenant& tenant, Qpn qpn) const {
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

void ControlState::publish_xrc_domain(const std::shared_ptr<XrcDomain>& domain) {
  std::erase_if(xrc_domains_, [](const auto& entry) { return entry.second.expired(); });
  xrc_domains_[{domain->device, domain->inode}] = domain;
}

}  // namespace uroce::daemon
