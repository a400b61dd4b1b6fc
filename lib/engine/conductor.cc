#include "engine/conductor.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine/clock.h"
#include "engine/commands/commands.h"
#include "engine/log.h"
#include "engine/sysfs_tree.h"

namespace uroce::engine {
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
};
static_assert(std::size(kCommands) == UROCE_CMD_ADMIN + 1);

}  // namespace

Conductor::Conductor(const DaemonConfig& config, const net::DeviceInfo& device, WorkerShared& workers,
                     memory::Table& memory, std::uint64_t seed)
    : config_(config),
      workers_(workers),
      memory_(memory),
      port_(config, device, static_cast<std::uint32_t>(workers.workers.size())),
      accounts_(config.limits),
      qp_counts_(workers.workers.size()),
      last_pd_(static_cast<std::uint32_t>(seed) & 0xffff),
      started_(monotonic_now()) {
  for (std::uint32_t i = 0; i < workers.workers.size(); ++i) qpns_.emplace_back(i, seed + i);
}

Conductor::~Conductor() {
  while (!sessions_.empty()) close_session(*sessions_.begin()->second);
}

Session& Conductor::open_session(Peer peer, UniqueFd socket) {
  const std::uint64_t id = ++last_session_;
  auto& slot = sessions_[id];
  slot = std::make_unique<Session>(id, std::move(peer), std::move(socket), config_.hugepages);
  return *slot;
}

Reply Conductor::handle(Session& session, std::span<const std::byte> message, std::vector<UniqueFd> fds) {
  Reply reply;
  uroce_request request;
  if (message.size() < sizeof(request)) {
    reply.status = EINVAL;
    session.doomed = true;
    return reply;
  }
  std::memcpy(&request, message.data(), sizeof(request));
  const bool known = request.command < std::size(kCommands) && kCommands[request.command].run != nullptr;
  if (!known) {
    reply.status = EOPNOTSUPP;
    return reply;
  }
  const CommandRow& row = kCommands[request.command];
  if (!row.before_hello && !session.greeted) {
    reply.status = EINVAL;
    return reply;
  }
  commands::Call call{*this, session, message.subspan(sizeof(request)), fds, reply};
  reply.status = row.run(call);
  if (reply.status != 0) {
    reply.body.clear();
    // Chunks that were made on the way stay unannounced; the next response that makes room names them.
    reply.fds.clear();
  }
  return reply;
}

void Conductor::close_session(Session& session) {
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

std::optional<CqId> Conductor::allocate_cq_id() {
  if (!free_cq_ids_.empty()) {
    const CqId id{free_cq_ids_.back()};
    free_cq_ids_.pop_back();
    return id;
  }
  if (next_cq_id_ >= config_.max_cqs) return std::nullopt;
  return CqId{next_cq_id_++};
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

void Conductor::deliver_worker_events() {
  for (const proto::Event& event : workers_.events.take()) {
    const bool of_cq = event.type == proto::AsyncEvent::kCqError;
    auto& targets = of_cq ? cq_targets_ : qp_targets_;
    const auto it = targets.find(event.object);
    // The object may have been destroyed meanwhile.
    if (it == targets.end() || it->second.session->id != event.owner) continue;
    send_event(*it->second.session, {static_cast<std::uint32_t>(event.type), 0, it->second.cookie});
  }
}

void Conductor::refresh_link() {
  constexpr std::uint32_t kPortActive = 9, kPortError = 10;  // ibv_event_type
  bool up = port_.up();
  workers_.workers[0]->call([&](WorkerCore& worker) {
    if (worker.device_info) up = worker.device_info().link_up;
  });
  if (!port_.set_link(up)) return;
  log(LogLevel::kDebug, "%s: the link is %s", config_.name.c_str(), up ? "up" : "down");
  write_link_state(config_.run_dir, config_.name, port_);
  for (auto& [id, session] : sessions_) send_event(*session, {up ? kPortActive : kPortError, 1, 0});
}

void Conductor::shut_down() {
  for (auto& [id, session] : sessions_) {
    if (session->header == nullptr) continue;
    std::atomic_ref(session->header->dead).store(1, std::memory_order_release);
    constexpr std::uint32_t kDeviceFatal = 8;  // IBV_EVENT_DEVICE_FATAL
    send_event(*session, {kDeviceFatal, 0, 0});
  }
  while (!sessions_.empty()) close_session(*sessions_.begin()->second);
}

}  // namespace uroce::engine
