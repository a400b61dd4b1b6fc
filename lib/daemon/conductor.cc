#include "daemon/conductor.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "control/commands/command.h"
#include "control/sysfs_tree.h"
#include "platform/clock.h"
#include "platform/log.h"

namespace uroce::daemon {
namespace {

using Command = int (*)(commands::Call&);

struct CommandRow {
  Command run = nullptr;
  bool before_hello = false;
};

constexpr CommandRow kCommands[] = {
    {},
    {commands::hello, true},
    {commands::query_device, true},
    {commands::query_port, true},
    {commands::query_gid, true},
    {commands::alloc_pd},
    {commands::dealloc_pd},
    {commands::reg_mr},
    {commands::dereg_mr},
    {commands::create_channel},
    {commands::destroy_channel},
    {commands::create_cq},
    {commands::destroy_cq},
    {commands::create_qp},
    {commands::modify_qp},
    {commands::query_qp},
    {commands::destroy_qp},
    {commands::create_ah},
    {commands::destroy_ah},
    {commands::admin, true},
    {commands::create_srq},
    {commands::modify_srq},
    {commands::query_srq},
    {commands::destroy_srq},
    {commands::open_xrcd},
    {commands::close_xrcd},
    {commands::open_qp},
    {commands::attach_mcast},
    {commands::detach_mcast},
    {commands::alloc_mw},
    {commands::dealloc_mw},
    {commands::rereg_mr},
    {commands::alloc_null_mr},
    {commands::alloc_fast_mr},
    {commands::resize_cq},
    {commands::modify_cq},
    {commands::import_device},
    {commands::import_pd},
    {commands::import_mr},
    {commands::resolve_neighbour},
    {commands::alloc_dm},
    {commands::free_dm},
    {commands::import_dm},
    {commands::create_rss},
    {commands::destroy_rss},
    {commands::create_flow},
    {commands::destroy_flow},
    {commands::create_counters},
    {commands::destroy_counters},
    {commands::read_counters},
};
static_assert(std::size(kCommands) == UROCE_CMD_READ_COUNTERS + 1);

}  // namespace

Conductor::Conductor(const DaemonConfig& config, const net::DeviceInfo& device, WorkerShared& workers,
                     memory::Table& memory, std::uint64_t seed)
    : config_(config),
      workers_(workers),
      memory_(memory),
      port_(config, device, static_cast<std::uint32_t>(workers.workers.size())),
      accounts_(config.limits),
      cm_(*this, seed ^ 0x636d),
      qp_counts_(workers.workers.size()),
      cq_ids_(0, config.max_cqs),
      srq_ids_(1, config.max_srqs),
      ah_ids_(1, kMaxAh),
      last_pd_(static_cast<std::uint32_t>(seed) & 0xffff),
      kernel_addresses_(device.kernel_interface),
      started_(monotonic_now()) {
  for (std::uint32_t i = 0; i < workers.workers.size(); ++i) qpns_.emplace_back(i, seed + i);
  tell_workers_addresses();
  share_with_kernel();
}

Conductor::~Conductor() {
  while (!sessions_.empty()) close_session(*sessions_.begin()->second);
}

Session& Conductor::open_session(Peer peer, UniqueFd socket) {
  const std::uint64_t id = ++last_session_;
  auto& slot = sessions_[id];
  auto stall_budget = this->stall_budget(peer.uid);
  slot =
      std::make_unique<Session>(id, std::move(peer), std::move(socket), config_.hugepages, std::move(stall_budget));
  return *slot;
}

Reply Conductor::handle(Session& session, std::span<const std::byte> message, std::vector<UniqueFd> fds) {
  Reply reply;
  const std::uint64_t unknown = session.unknown_handles;
  execute(session, message, fds, reply);
  close_async(std::move(fds));
  if (reply.status == 0 || reply.status == kParked) return reply;
  reply.body.clear();
  // Chunks that were made on the way stay unannounced; the next response that makes room names them.
  reply.fds.clear();
  Rejection reason = reply.reason.value_or(rejection_of(reply.status));
  if (reason == Rejection::bad_value && session.unknown_handles != unknown) reason = Rejection::unknown_handle;
  rejections_.count(reason);
  return reply;
}

void Conductor::execute(Session& session, std::span<const std::byte> message, std::vector<UniqueFd>& fds,
                        Reply& reply) {
  uroce_request request;
  if (message.size() < sizeof(request)) {
    session.close_pending = true;
    rejections_.count(Rejection::sessions_closed);
    return reply.refuse(EINVAL, Rejection::malformed);
  }
  std::memcpy(&request, message.data(), sizeof(request));
  commands::Call call{*this, session, message.subspan(sizeof(request)), fds, reply};
  if (request.command >= UROCE_CMD_CM_FIRST && request.command < UROCE_CMD_CM_END) {
    if (!session.hello_done) return reply.refuse(EINVAL, Rejection::before_hello);
    reply.status = cm_.run(request.command, call);
    return;
  }
  const bool known = request.command < std::size(kCommands) && kCommands[request.command].run != nullptr;
  if (!known) return reply.refuse(EOPNOTSUPP, Rejection::unknown_command);
  const CommandRow& row = kCommands[request.command];
  if (!row.before_hello && !session.hello_done) return reply.refuse(EINVAL, Rejection::before_hello);
  reply.status = row.run(call);
}

void Conductor::close_session(Session& session) {
  cm_.release(session, monotonic_now());
  commands::release_all(*this, session);
  if (session.parked) --parked_;
  log(LogLevel::kDebug, "session %llu (%s, process %d) is closed", static_cast<unsigned long long>(session.id),
      session.program.c_str(), static_cast<int>(session.peer.pid));
  sessions_.erase(session.id);
}

Session* Conductor::session(std::uint64_t id) {
  const auto it = sessions_.find(id);
  return it == sessions_.end() ? nullptr : it->second.get();
}

bool Conductor::join_group(const wire::Address& group) {
  if (groups_.size() >= kMaxGroups && !groups_.contains(group)) return false;
  if (groups_[group]++ != 0) return true;
  workers_.workers[0]->call([&](WorkerCore& worker) {
    if (worker.link() == nullptr) return;
    worker.link()->join(group, monotonic_now());
    worker.touch_link();
  });
  return true;
}

void Conductor::leave_group(const wire::Address& group) {
  const auto it = groups_.find(group);
  if (it == groups_.end() || --it->second != 0) return;
  groups_.erase(it);
  workers_.workers[0]->call([&](WorkerCore& worker) {
    if (worker.link() == nullptr) return;
    worker.link()->leave(group, monotonic_now());
    worker.touch_link();
  });
}

int Conductor::charge(Session& session, const Usage& more) {
  if (const char* what = accounts_.charge(session.peer.uid, more)) {
    log(LogLevel::kWarning,
        "user %u has reached its limit of %s; raise [limits] in the configuration or close programs",
        static_cast<unsigned>(session.peer.uid), what);
    return ENOMEM;
  }
  session.usage.qps += more.qps, session.usage.cqs += more.cqs;
  session.usage.mrs += more.mrs, session.usage.bytes += more.bytes;
  return 0;
}

void Conductor::refund(Session& session, const Usage& less) {
  accounts_.refund(session.peer.uid, less);
  session.usage.qps -= less.qps, session.usage.cqs -= less.cqs;
  session.usage.mrs -= less.mrs, session.usage.bytes -= less.bytes;
}

const std::shared_ptr<StallBudget>& Conductor::stall_budget(uid_t user) {
  const Nanos now = monotonic_now();
  // Who has all of his needs no entry.
  std::erase_if(stall_budget_, [&](const auto& entry) {
    return entry.first != user && entry.second.use_count() == 1 && entry.second->is_full(now);
  });
  auto& mine = stall_budget_[user];
  if (!mine) mine = std::make_shared<StallBudget>();
  return mine;
}

std::shared_ptr<XrcDomain> Conductor::find_xrc_domain(dev_t device, ino_t inode) const {
  const auto it = xrc_domains_.find({device, inode});
  return it == xrc_domains_.end() ? nullptr : it->second.lock();
}

std::shared_ptr<XrcDomain> Conductor::new_xrc_domain() {
  auto domain = std::make_shared<XrcDomain>();
  domain->id = ++last_xrc_domain_;
  return domain;
}

void Conductor::publish_xrc_domain(const std::shared_ptr<XrcDomain>& domain) {
  std::erase_if(xrc_domains_, [](const auto& entry) { return entry.second.expired(); });
  xrc_domains_[{domain->device, domain->inode}] = domain;
}

void Conductor::forget_qp(const Session& session, const QpObject& qp) {
  const auto [first, end] = qp_targets_.equal_range(qp.qpn.value);
  for (auto it = first; it != end; ++it) {
    if (it->second.session != &session || it->second.cookie != qp.cookie) continue;
    qp_targets_.erase(it);
    return;
  }
}

std::uint32_t Conductor::choose_worker() const {
  return static_cast<std::uint32_t>(std::ranges::min_element(qp_counts_) - qp_counts_.begin());
}

void Conductor::on_all_workers(const Mailbox::Function& function) {
  for (WorkerCore* worker : workers_.workers) worker->call(function);
}

void Conductor::send_event(Session& session, const uroce_async_event& event) {
  constexpr std::size_t kMaxOwed = 1024;
  if (!session.events.valid()) return;
  if (session.events_owed.empty()) {
    if (::write(session.events.get(), &event, sizeof(event)) == sizeof(event) || errno != EAGAIN) return;
  }
  if (session.events_owed.size() < kMaxOwed) session.events_owed.push_back(event);
}

Conductor::EventTargets& Conductor::targets_of(proto::AsyncEvent type) {
  switch (type) {
    case proto::AsyncEvent::kCqError: return cq_targets_;
    case proto::AsyncEvent::kSrqError:
    case proto::AsyncEvent::kSrqLimitReached: return srq_targets_;
    default: return qp_targets_;
  }
}

void Conductor::deliver_worker_events() {
  for (const proto::Event& event : workers_.events.take()) {
    const auto [first, end] = targets_of(event.type).equal_range(event.object);
    for (auto it = first; it != end; ++it) {
      // The object may have been destroyed meanwhile, and its number be another's.
      if (event.owner != commands::kNoSession && it->second.session->id != event.owner) continue;
      send_event(*it->second.session, {static_cast<std::uint32_t>(event.type), 0, it->second.cookie});
    }
  }
}

void Conductor::broadcast_event(std::uint32_t event) {
  for (auto& [id, session] : sessions_) send_event(*session, {event, 1, 0});
}

void Conductor::refresh_link() {
  constexpr std::uint32_t kPortActive = 9, kPortError = 10;  // ibv_event_type
  bool up = port_.up();
  workers_.workers[0]->call([&](WorkerCore& worker) {
    if (const PortControl* port = worker.port(); port != nullptr) up = port->info().link_up;
  });
  up = up && !workers_.link_disabled.load(std::memory_order_relaxed);
  if (!port_.set_link(up)) return;
  log(LogLevel::kDebug, "%s: the link is %s", config_.name.c_str(), up ? "up" : "down");
  write_link_state(config_.run_dir, config_.name, port_);
  broadcast_event(up ? kPortActive : kPortError);
}

void Conductor::enable_link(bool enabled) {
  workers_.link_disabled.store(!enabled, std::memory_order_relaxed);
  refresh_link();
}

bool Conductor::set_mtu(std::uint32_t bytes) {
  if (!port_.set_link_mtu(bytes)) return false;
  on_all_workers([&](WorkerCore& worker) {
    worker.transport().set_port_mtu(port_.active_mtu_bytes());
    worker.transport().set_max_frame(max_frame_of_link(bytes));
    if (worker.link() != nullptr) worker.link()->set_mtu(bytes);
  });
  for (auto& [id, session] : sessions_) {
    if (session->header == nullptr) continue;
    std::atomic_ref(session->header->packet_bytes).store(port_.active_mtu_bytes(), std::memory_order_relaxed);
  }
  return true;
}

bool Conductor::add_address(const net::InterfaceAddress& address) {
  if (!port_.add_gid(address)) return false;
  workers_.workers[0]->call([&](WorkerCore& worker) {
    if (worker.link() == nullptr) return;
    worker.link()->add_address(address);
    worker.touch_link();
  });
  gids_changed();
  return true;
}

bool Conductor::remove_address(const wire::Address& address) {
  if (!port_.remove_gid(address)) return false;
  workers_.workers[0]->call([&](WorkerCore& worker) {
    if (worker.link() != nullptr) worker.link()->remove_address(address);
  });
  gids_changed();
  return true;
}

void Conductor::tell_workers_addresses() {
  const std::vector<net::InterfaceAddress> addresses = port_.gids().addresses();
  on_all_workers([&](WorkerCore& worker) { worker.set_addresses(addresses); });
}

void Conductor::share_with_kernel() {
  if (!kernel_addresses_.refresh(port_.gids().addresses())) return;
  const std::vector<wire::Address> shared = kernel_addresses_.shared();
  workers_.workers[0]->call([&](WorkerCore& worker) {
    if (worker.link() != nullptr) worker.link()->leave_to_kernel(shared);
  });
}

void Conductor::gids_changed() {
  constexpr std::uint32_t kGidChange = 18;  // IBV_EVENT_GID_CHANGE
  tell_workers_addresses();
  share_with_kernel();
  rewrite_gids(config_.run_dir, config_.name, port_);
  broadcast_event(kGidChange);
}

void Conductor::shut_down() {
  cm_.device_gone();
  for (auto& [id, session] : sessions_) {
    if (session->header == nullptr) continue;
    std::atomic_ref(session->header->dead).store(1, std::memory_order_release);
    constexpr std::uint32_t kDeviceFatal = 8;  // IBV_EVENT_DEVICE_FATAL
    send_event(*session, {kDeviceFatal, 0, 0});
  }
  while (!sessions_.empty()) close_session(*sessions_.begin()->second);
}

}  // namespace uroce::daemon
