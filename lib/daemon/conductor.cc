#include "daemon/conductor.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <unordered_map>
#include <unordered_set>

#include "admin/command.h"
#include "control/commands/command.h"
#include "control/commands/command_table.h"
#include "control/machine/port.h"
#include "control/state/verb_faults.h"
#include "platform/clock.h"
#include "platform/log.h"

namespace uroce::daemon {

namespace commands = control::commands;

using control::Rejection;
using control::Reply;
using control::Session;
using platform::log;
using platform::LogLevel;

namespace {

using Command = int (*)(Conductor&, commands::Call&);

template <int (*kCommand)(commands::Call&)>
int run(Conductor&, commands::Call& call) {
  return kCommand(call);
}

int run_admin(Conductor& conductor, commands::Call& call) { return admin::admin_command(conductor.admin(), call); }

constexpr control::CommandRow<Command> kCommands[] = {
    {UROCE_CMD_HELLO, run<commands::hello>, true},
    {UROCE_CMD_QUERY_DEVICE, run<commands::query_device>, true},
    {UROCE_CMD_QUERY_PORT, run<commands::query_port>, true},
    {UROCE_CMD_QUERY_GID, run<commands::query_gid>, true},
    {UROCE_CMD_ALLOC_PD, run<commands::alloc_pd>},
    {UROCE_CMD_DEALLOC_PD, run<commands::dealloc_pd>},
    {UROCE_CMD_REG_MR, run<commands::reg_mr>, false, UROCE_MAX_MESSAGE_FDS},
    {UROCE_CMD_DEREG_MR, run<commands::dereg_mr>},
    {UROCE_CMD_CREATE_CHANNEL, run<commands::create_channel>},
    {UROCE_CMD_DESTROY_CHANNEL, run<commands::destroy_channel>},
    {UROCE_CMD_CREATE_CQ, run<commands::create_cq>},
    {UROCE_CMD_DESTROY_CQ, run<commands::destroy_cq>},
    {UROCE_CMD_CREATE_QP, run<commands::create_qp>},
    {UROCE_CMD_MODIFY_QP, run<commands::modify_qp>},
    {UROCE_CMD_QUERY_QP, run<commands::query_qp>},
    {UROCE_CMD_DESTROY_QP, run<commands::destroy_qp>},
    {UROCE_CMD_CREATE_AH, run<commands::create_ah>},
    {UROCE_CMD_DESTROY_AH, run<commands::destroy_ah>},
    {UROCE_CMD_ADMIN, run_admin, true},
    {UROCE_CMD_CREATE_SRQ, run<commands::create_srq>},
    {UROCE_CMD_MODIFY_SRQ, run<commands::modify_srq>},
    {UROCE_CMD_QUERY_SRQ, run<commands::query_srq>},
    {UROCE_CMD_DESTROY_SRQ, run<commands::destroy_srq>},
    {UROCE_CMD_OPEN_XRCD, run<commands::open_xrcd>, false, 1},
    {UROCE_CMD_CLOSE_XRCD, run<commands::close_xrcd>},
    {UROCE_CMD_OPEN_QP, run<commands::open_qp>},
    {UROCE_CMD_ATTACH_MCAST, run<commands::attach_mcast>},
    {UROCE_CMD_DETACH_MCAST, run<commands::detach_mcast>},
    {UROCE_CMD_ALLOC_MW, run<commands::alloc_mw>},
    {UROCE_CMD_DEALLOC_MW, run<commands::dealloc_mw>},
    {UROCE_CMD_REREG_MR, run<commands::rereg_mr>, false, UROCE_MAX_MESSAGE_FDS},
    {UROCE_CMD_ALLOC_NULL_MR, run<commands::alloc_null_mr>},
    {UROCE_CMD_ALLOC_FAST_MR, run<commands::alloc_fast_mr>, false, UROCE_MAX_MESSAGE_FDS},
    {UROCE_CMD_RESIZE_CQ, run<commands::resize_cq>},
    {UROCE_CMD_MODIFY_CQ, run<commands::modify_cq>},
    {UROCE_CMD_IMPORT_DEVICE, run<commands::import_device>, false, 1},
    {UROCE_CMD_IMPORT_PD, run<commands::import_pd>},
    {UROCE_CMD_IMPORT_MR, run<commands::import_mr>},
    {UROCE_CMD_RESOLVE_NEIGHBOUR, run<commands::resolve_neighbour>},
    {UROCE_CMD_ALLOC_DM, run<commands::alloc_dm>, false, 1},
    {UROCE_CMD_FREE_DM, run<commands::free_dm>},
    {UROCE_CMD_IMPORT_DM, run<commands::import_dm>},
    {UROCE_CMD_CREATE_RSS, run<commands::create_rss>},
    {UROCE_CMD_DESTROY_RSS, run<commands::destroy_rss>},
    {UROCE_CMD_CREATE_FLOW, run<commands::create_flow>},
    {UROCE_CMD_DESTROY_FLOW, run<commands::destroy_flow>},
    {UROCE_CMD_CREATE_COUNTERS, run<commands::create_counters>},
    {UROCE_CMD_DESTROY_COUNTERS, run<commands::destroy_counters>},
    {UROCE_CMD_READ_COUNTERS, run<commands::read_counters>},
    {UROCE_CMD_EXPLAIN, run<commands::explain>, true},
    {UROCE_CMD_CREATE_COMP_CNTR, run<commands::create_comp_cntr>},
    {UROCE_CMD_DESTROY_COMP_CNTR, run<commands::destroy_comp_cntr>},
    {UROCE_CMD_ATTACH_COMP_CNTR, run<commands::attach_comp_cntr>},
};
static_assert(control::rows_match_opcodes(kCommands, UROCE_CMD_HELLO, UROCE_CMD_END - 1));

}  // namespace

Conductor::Conductor(control::Process& process, const control::DaemonConfig& config, const net::DeviceInfo& device,
                     worker::WorkerShared& workers, memory::Table& memory, std::uint64_t seed)
    : state_(process, config, device, workers, memory, seed),
      link_(state_, events_, device.kernel_interface),
      cm_(state_.port(), state_.quotas(), workers.gsi, link_, seed ^ 0x636d),
      discarded_(
          std::make_shared<worker::Channel<std::uint64_t>>(kMaxDiscards, worker::ChannelReader::kSleepsOnFd)) {}

Conductor::~Conductor() {
  while (!state_.sessions().empty()) close_session(*state_.sessions().begin()->second);
  state_.process().count_pollers(polling_, 0);
}

template <class Command>
void Conductor::run_for(Session& session, const uroce_request& request, Reply& reply, Command&& command) {
  const platform::LogUser caused_by(session.peer.uid);
  state_.stall_watch().note_control(proto::mark_of_session(session.id));
  const control::CommandTimer timer(command_times_, control::command_name(request.command), session.id);
  try {
    command();
  } catch (const std::exception& error) {  // no memory, or no thread: the command may be half done
    log(LogLevel::kError, "a command of %s failed (%s); its session is closed", session.program.c_str(),
        error.what());
    reply.refuse(ENOMEM, Rejection::limit_reached);
    session.close_pending = true;
  }
  state_.stall_watch().note_control(0);
}

void Conductor::close_refused(Session& session, const uroce_request& request, const Marks& before, Reply& reply) {
  reply.body.clear();
  // Chunks that the command added stay unannounced: the next response that allocates memory names them.
  reply.fds.clear();
  try {
    explain_refusal(session, request, before, reply);
  } catch (const std::bad_alloc&) {  // the status says it without words
  }
}

void Conductor::explain_refusal(Session& session, const uroce_request& request, const Marks& before, Reply& reply) {
  Rejection reason = reply.reason.value_or(control::rejection_of(reply.status));
  const Marks now = marks(session);
  if (reason == Rejection::bad_value && now.unknown_handles != before.unknown_handles) {
    reason = Rejection::unknown_handle;
    reply.why = "there is no object with handle " + std::to_string(session.unknown_handles.last) +
                " in this session: it was destroyed, or belongs to another device context";
  }
  if (reply.why.empty() && now.quota_refusals != before.quota_refusals) reply.why = state_.quotas().last_refusal();
  if (reply.why.empty()) reply.why = control::default_text(reason);
  keep_refusal(session, request, reply.status, reason, std::move(reply.why));
}

void Conductor::keep_refusal(Session& session, const uroce_request& request, int error, Rejection reason,
                             std::string text) {
  session.explained = {request, error, text};
  state_.rejections().add({.tenant = session.peer.tenant(),
                           .pid = session.peer.pid,
                           .program = session.program,
                           .command = request.command,
                           .error = error,
                           .reason = reason,
                           .text = std::move(text)});
}

Reply Conductor::handle(Session& session, std::span<const std::byte> message, std::vector<UniqueFd> fds) {
  Reply reply;
  uroce_request request{};
  std::copy_n(message.data(), std::min(sizeof(request), message.size()), reinterpret_cast<std::byte*>(&request));
  const Marks before = marks(session);
  run_for(session, request, reply, [&] { execute(session, message, fds, reply); });
  close_attached(session, std::move(fds), reply.status == 0);
  state_.process().users().count_closing(session.peer.uid);
  if (reply.status > 0) close_refused(session, request, before, reply);
  return reply;
}

void Conductor::answer_later(Session& session, const uroce_request& request, control::NeighbourWait wait) {
  const control::NeighbourKey key = wait.neighbour;
  const control::NeighbourWaiters::Id waiter = link_.wait_for(
      key, monotonic_now() + kPendingLimit,
      [this, &session, wait = std::move(wait)](const control::Neighbour& found) { resume(session, wait, found); });
  session.pending = Session::PendingRequest{request, waiter};
  watch(session.socket.get(), tag_of(session.id, false), false);
}

void Conductor::resume(Session& session, const control::NeighbourWait& wait, const control::Neighbour& neighbour) {
  const uroce_request request = std::exchange(session.pending, std::nullopt)->header;
  Reply reply;
  std::vector<UniqueFd> no_fds;
  const Marks before = marks(session);
  run_for(session, request, reply, [&] {
    commands::Call call{state_, events_, link_, session, {}, no_fds, reply};
    reply.status = wait.resume(call, neighbour);
  });
  if (reply.status != 0) close_refused(session, request, before, reply);
  watch(session.socket.get(), tag_of(session.id, false), true);
  if (!answer(session, request, reply)) session.close_pending = true;
}

void Conductor::finish_later(Session& session, const uroce_request& request,
                             std::function<int(commands::Call&)> rest) {
  session.unfinished = Session::UnfinishedRequest{request, std::move(rest)};
  unfinished_.push_back(session.id);
  watch(session.socket.get(), tag_of(session.id, false), false);
}

bool Conductor::run_slice() {
  if (unfinished_.empty()) return false;
  const std::uint64_t id = unfinished_.front();
  unfinished_.pop_front();
  Session* const session = state_.session(id);
  if (session == nullptr || !session->unfinished || session->close_pending) return true;
  const Nanos begin = monotonic_now();
  const Session::UnfinishedRequest request = *std::exchange(session->unfinished, std::nullopt);
  Reply reply;
  std::vector<UniqueFd> no_fds;
  const Marks before = marks(*session);
  run_for(*session, request.header, reply, [&] {
    commands::Call call{state_, events_, link_, *session, {}, no_fds, reply};
    reply.status = request.rest(call);
  });
  const Nanos end = monotonic_now();
  session->stall_budget->charge_control(end - begin, end);
  if (reply.status == control::kUnfinished) {
    finish_later(*session, request.header, std::move(reply.rest));
    return true;
  }
  if (reply.status != 0) close_refused(*session, request.header, before, reply);
  watch(session->socket.get(), tag_of(id, false), true);
  if (!answer(*session, request.header, reply)) session->close_pending = true;
  return true;
}

void Conductor::take_worker_events() {
  const std::vector<proto::Event> events = state_.workers().events.take();
  std::unordered_map<std::uint64_t, std::unordered_set<std::uint32_t>> sent;  // QPNs by session
  for (const proto::Event& event : events) {
    if (event.type == proto::AsyncEvent::kDatagramsSent) sent[event.owner].insert(event.object);
  }
  for (const auto& [owner, qpns] : sent) {
    Session* const session = state_.session(owner);
    if (session == nullptr) continue;
    // Once for all events of the session, which may have as many as QPs.
    for (const auto& [handle, qp] : session->qps) {
      if (qpns.contains(qp->qpn.value)) commands::release_sent_handles(state_, *session, *qp);
    }
  }
  events_.deliver(events);
}

void Conductor::log_failures() {
  worker::Channel<proto::QpFailure>& failures = state_.workers().failures;
  if (!failures.waiting()) return;
  for (const proto::QpFailure& failure : failures.take()) {
    const Session* const session = state_.session(failure.owner);
    if (session == nullptr) continue;
    const platform::LogUser caused_by(session->peer.uid);
    std::string what(control::event_name(failure.event));
    char text[64];
    if (failure.cause != 0) {
      const std::uint32_t vendor_err = proto::vendor_err_of(failure.cause);
      std::snprintf(text, sizeof text, ", vendor_err 0x%x", vendor_err);
      what = std::string(control::status_name(vendor_err / 16)) + text;
    }
    if (failure.peer != wire::Address{}) {
      std::snprintf(text, sizeof text, "; its peer is QP 0x%06x of ", failure.peer_qpn.value);
      what += text + control::address_text(failure.peer);
    }
    log(LogLevel::kInfo, "QP 0x%06x of %s (process %d) has failed: %s", failure.qpn.value, session->program.c_str(),
        static_cast<int>(session->peer.pid), what.c_str());
  }
}

void Conductor::close_attached(Session& session, std::vector<UniqueFd> fds, bool used) {
  // The mapping of a memory file that a command has used keeps its pages, so closing it here frees nothing.
  if (used)
    std::erase_if(fds, [](const UniqueFd& file) { return !file.valid() || mapping::is_memory_file(file.get()); });
  if (fds.empty()) return;
  mapping::Closer& closer = session.stall_budget->closer();
  closer.close(std::move(fds));
  if (closer.is_full()) close_for_backlog(session);
}

void Conductor::close_for_backlog(Session& session) {
  if (session.close_pending) return;
  log(LogLevel::kWarning, "descriptors of user %u do not close (%zu are left); the session of %s is closed",
      static_cast<unsigned>(session.peer.uid), session.stall_budget->closer().backlog(), session.program.c_str());
  session.close_pending = true;
  state_.rejections().count(Rejection::sessions_closed);
}

void Conductor::execute(Session& session, std::span<const std::byte> message, std::vector<UniqueFd>& fds,
                        Reply& reply) {
  uroce_request request;
  if (message.size() < sizeof(request)) {
    session.close_pending = true;
    state_.rejections().count(Rejection::sessions_closed);
    return reply.refuse(EINVAL, Rejection::malformed);
  }
  std::memcpy(&request, message.data(), sizeof(request));
  commands::Call call{state_, events_, link_, session, message.subspan(sizeof(request)), fds, reply};
  const control::VerbFaults::Rule* const rule = state_.verb_faults().judge(session, request.command);
  if (rule != nullptr && !rule->what.cm) {
    reply.status = rule->what.error;
    reply.why =
        "rule " + std::to_string(rule->number) + " of `urocectl fault verbs` refuses it: " + rule->what.text;
    return;
  }
  if (request.command >= UROCE_CMD_CM_FIRST && request.command < UROCE_CMD_CM_END) {
    if (!session.hello_done) return reply.refuse(EINVAL, Rejection::before_hello);
    if (rule != nullptr) call.instead = &rule->what;
    reply.status = cm_.run(request.command, call);
    return;
  }
  const control::CommandRow<Command>* row = control::find_command(kCommands, request.command);
  if (row == nullptr) return reply.refuse(EOPNOTSUPP, Rejection::unknown_command);
  if (!row->before_hello && !session.hello_done) return reply.refuse(EINVAL, Rejection::before_hello);
  if (fds.size() > row->descriptors) return reply.refuse(EINVAL, Rejection::malformed);
  reply.status = row->run(*this, call);
}

void Conductor::close_session(Session& session) {
  const control::CommandTimer timer(command_times_, kCloseName, session.id);
  log_failures();  // they name the program
  const platform::LogUser caused_by(session.peer.uid);
  cm_.release(session, monotonic_now());
  while (!commands::release_some(state_, events_, link_, session, ~Nanos{0})) {
  }
  log(session.hello_done ? LogLevel::kInfo : LogLevel::kDebug, "%s: session %llu (%s, process %d) is closed",
      state_.config().name.c_str(), static_cast<unsigned long long>(session.id), session.program.c_str(),
      static_cast<int>(session.peer.pid));
  state_.stall_watch().remove(proto::mark_of_session(session.id), session.id);
  // The closer may take long: the epoll set has no more events now.
  ::epoll_ctl(watches_.epoll, EPOLL_CTL_DEL, session.socket.get(), nullptr);
  const uid_t user = session.peer.uid;
  state_.erase_session(session.id);
  state_.process().users().count_closing(user);
}

void Conductor::shut_down() {
  constexpr std::uint32_t kDeviceFatal = 8;  // IBV_EVENT_DEVICE_FATAL
  cm_.device_gone(state_.sessions());
  for (const auto& [id, session] : state_.sessions()) {
    if (session->header == nullptr) continue;
    std::atomic_ref(session->header->dead).store(1, std::memory_order_release);
    events_.send(*session, {kDeviceFatal, 0, 0});
  }
  while (!state_.sessions().empty()) close_session(*state_.sessions().begin()->second);
}

}  // namespace uroce::daemon
