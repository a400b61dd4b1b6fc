// The control thread's sockets: accepting clients, reading requests, detecting that a client died, the heartbeat.
#include <grp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "admin/counters.h"
#include "control/commands/command.h"
#include "control/session/privilege.h"
#include "control/state/worker_commands.h"
#include "daemon/conductor.h"
#include "mapping/sigbus_guard.h"
#include "platform/clock.h"
#include "platform/log.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

namespace uroce::daemon {

using control::Rejection;
using control::Session;
using platform::log;
using platform::LogLevel;
using platform::LogUser;

namespace {

constexpr Nanos kHeartbeat = 100 * kMillisecond;
// While clients are connected: the workers' poll policy depends on how many threads of other daemons poll.
constexpr Nanos kActiveHeartbeat = 10 * kMillisecond;
constexpr Nanos kLinkCheck = 500 * kMillisecond;
// Between two changes: a peer that connects and leaves without end does not fill the log.
constexpr Nanos kLeastLinkTime = 50 * kMillisecond;
constexpr Nanos kClosingSlice = 2 * kMillisecond;  ///< of all sessions that are being closed, in one round
constexpr Nanos kHelloLimit = 10 * kSecond;        ///< without a request, before HELLO

platform::Peer peer_of(int socket) {
  platform::Peer peer;
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return peer;
  peer.pid = credentials.pid;
  peer.uid = credentials.uid;
  peer.gid = credentials.gid;
  int pidfd = -1;
  length = sizeof(pidfd);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) != 0) {
    // Before Linux 6.5. The socket is still open at the other end, so the process number has not been reused.
    pidfd = peer.pid > 0 ? static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)) : -1;
  }
  peer.pidfd.reset(pidfd);
  control::read_namespaces(peer);
  return peer;
}

struct Received {
  std::vector<std::byte> message;
  std::vector<UniqueFd> fds;
  pid_t sender = 0;  ///< 0: unknown
  bool closed = false, nothing = false;
  bool too_long = false;
  bool no_room = false;  ///< not all descriptors fit into the daemon's table; the message is still in the socket
};

/// The most descriptors of a message (SCM_MAX_FD of the kernel).
constexpr std::size_t kMaxAttached = 253;

void take_attached(msghdr& header, Received& out) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET) continue;
    if (c->cmsg_type == SCM_CREDENTIALS) {
      ucred credentials;
      std::memcpy(&credentials, CMSG_DATA(c), sizeof(credentials));
      out.sender = credentials.pid;
    }
    if (c->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
      out.fds.emplace_back(fd);
    }
  }
}

// A descriptor that does not fit would be closed by recvmsg(2) on this thread, which may block. So the message is
// read with its descriptors and stays in the socket (MSG_PEEK); taking it out then drops no last reference.
// Without `attached`, a message with descriptors is one for which there is no room.
Received receive_message(int socket, bool attached) {
  Received in;
  in.message.resize(UROCE_MAX_MESSAGE);
  in.fds.reserve(UROCE_MAX_MESSAGE_FDS);
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxAttached) + CMSG_SPACE(sizeof(ucred))];
  iovec part{in.message.data(), in.message.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = attached ? sizeof(control) : CMSG_SPACE(sizeof(ucred));
  const ssize_t n = ::recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | MSG_PEEK);
  if (n < 0) {
    in.nothing = errno == EAGAIN || errno == EINTR;
    in.closed = !in.nothing;
    return in;
  }
  take_attached(header, in);
  in.closed = n == 0;
  in.too_long = (header.msg_flags & MSG_TRUNC) != 0;
  in.no_room = (header.msg_flags & MSG_CTRUNC) != 0;
  in.message.resize(static_cast<std::size_t>(n));
  if (in.closed || in.no_room) return in;
  // Into one byte: with none, recvmsg(2) of qemu-user leaves it in the socket.
  char byte;
  static_cast<void>(::recv(socket, &byte, sizeof(byte), MSG_DONTWAIT));
  return in;
}

/// Whether a socket, or those that a listener accepts, may receive descriptors. Kernels before 6.16 always permit
/// it.
void permit_descriptors(int socket, bool permit) {
  const int value = permit ? 1 : 0;
  ::setsockopt(socket, SOL_SOCKET, SO_PASSRIGHTS, &value, sizeof(value));
}

bool send_message(int socket, std::span<const std::byte> head, std::span<const std::byte> body,
                  const std::vector<UniqueFd>& fds) {
  iovec parts[2] = {{const_cast<std::byte*>(head.data()), head.size()},
                    {const_cast<std::byte*>(body.data()), body.size()}};
  msghdr header{};
  header.msg_iov = parts;
  header.msg_iovlen = 2;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * UROCE_MAX_MESSAGE_FDS)] = {};
  if (!fds.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    cmsghdr* c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    for (std::size_t i = 0; i < fds.size(); ++i) {
      const int fd = fds[i].get();
      std::memcpy(CMSG_DATA(c) + i * sizeof(int), &fd, sizeof(int));
    }
  }
  return ::sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

/// Group and mode of the socket. A group that does not exist, or that the daemon may not give it to, is ignored if
/// it is the default one.
absl::Status set_permissions(const std::string& path, const control::DaemonConfig& config) {
  const bool by_default = config.socket_group == control::DaemonConfig{}.socket_group;
  const group* const found = config.socket_group.empty() ? nullptr : ::getgrnam(config.socket_group.c_str());
  const bool given = found != nullptr && ::lchown(path.c_str(), static_cast<uid_t>(-1), found->gr_gid) == 0;
  if (found != nullptr && !given && !by_default) {
    return absl::ErrnoToStatus(errno, "can't give " + path + " to the group " + config.socket_group +
                                          "; run the daemon as root or as a member of the group");
  }
  const mode_t mode = config.socket_mode != 0 ? config.socket_mode : given ? 0660 : 0666;
  if (::chmod(path.c_str(), mode) != 0) return absl::ErrnoToStatus(errno, "chmod " + path);
  return absl::OkStatus();
}

}  // namespace

void Conductor::watch(int fd, std::uint64_t tag, bool readable) {
  epoll_event event{};
  event.events = (readable ? EPOLLIN : 0u) | EPOLLRDHUP;
  event.data.u64 = watches_.tag | tag;
  if (::epoll_ctl(watches_.epoll, EPOLL_CTL_MOD, fd, &event) != 0) {
    ::epoll_ctl(watches_.epoll, EPOLL_CTL_ADD, fd, &event);
  }
}

absl::Status Conductor::listen(const std::string& path, const Watches& watches) {
  watches_ = watches;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError("the socket's path " + path +
                                      " is longer than 107 bytes; use a shorter --run-dir");
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return absl::ErrnoToStatus(errno, "socket");
  // This daemon holds the lock on the device's name, so an existing socket is left over from a dead daemon.
  struct stat left {};
  if (::unlink(path.c_str()) != 0 && ::lstat(path.c_str(), &left) == 0 && left.st_uid != ::geteuid()) {
    return absl::PermissionDeniedError(path + " belongs to user " + std::to_string(left.st_uid) +
                                       ", who could answer in place of the daemon; remove it, or use --run-dir");
  }
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return absl::ErrnoToStatus(errno, "bind " + path + ": is the run directory writable?");
  }
  // Descriptors that wait in the socket of a refused client would be closed with it, on this thread.
  permit_descriptors(socket.get(), false);
  if (absl::Status status = set_permissions(path, state_.config()); !status.ok()) return status;
  if (::listen(socket.get(), 128) != 0) return absl::ErrnoToStatus(errno, "listen on " + path);
  listener_ = std::move(socket);
  watch(listener_.get(), kListenerTag, true);
  watch(state_.workers().events.fd(), kWorkersTag, true);
  watch(state_.workers().gsi.fd(), kGsiTag, true);
  watch(state_.workers().neighbours.fd(), kNeighboursTag, true);
  watch(discarded_->fd(), kDiscardedTag, true);
  if (state_.config().link_events >= 0) watch(state_.config().link_events, kLinkTag, true);
  return absl::OkStatus();
}

void Conductor::accept_all() {
  for (int i = 0; i < 16; ++i) {
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      if (errno != EMFILE && errno != ENFILE) return;
      log(LogLevel::kError,
          "no file descriptor is free for another client; raise the limit of open files (ulimit -n)");
      // The listener stays readable: accept again after the next heartbeat instead of spinning.
      watch(listener_.get(), kListenerTag, false);
      accept_paused_ = true;
      return;
    }
    platform::Peer peer = peer_of(socket.get());
    const LogUser caused_by(peer.uid);
    permit_descriptors(socket.get(), true);
    const int on = 1;  // each message comes with its sender's process number
    ::setsockopt(socket.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
    const platform::Tenant tenant = peer.tenant();
    const pid_t pid = peer.pid;
    Session* const session = open_session(std::move(peer), std::move(socket));
    if (session == nullptr) {
      state_.rejections().add(
          {tenant, pid, {}, 0, ENOMEM, Rejection::limit_reached, state_.quotas().last_refusal()});
      continue;
    }
    session->idle_since = monotonic_now();
    watch(session->socket.get(), tag_of(session->id, false), true);
    if (session->peer.pidfd.valid()) watch(session->peer.pidfd.get(), tag_of(session->id, true), true);
  }
}

bool Conductor::answer(Session& session, const uroce_request& request, control::Reply& reply) {
  const uroce_response response{request.command, request.sequence, reply.status,
                                static_cast<std::uint32_t>(reply.fds.size())};
  return send_message(session.socket.get(), std::as_bytes(std::span(&response, 1)), reply.body, reply.fds);
}

void Conductor::read_session(Session& session) {
  const bool closer_full = session.stall_budget->closer().is_full();
  Received in = receive_message(session.socket.get(), !closer_full);
  if (in.nothing) return;
  if (in.no_room && closer_full) return close_for_backlog(session);
  const bool whole = in.message.size() >= sizeof(uroce_request) && !in.too_long;
  if (in.closed || !whole) {
    close_attached(session, std::move(in.fds), false);
    session.close_pending = true;
    if (in.closed) return;
    state_.rejections().count(Rejection::malformed);
    state_.rejections().count(Rejection::sessions_closed);
    return;
  }
  if (session.header == nullptr) session.idle_since = monotonic_now();
  uroce_request request;
  std::memcpy(&request, in.message.data(), sizeof(request));
  if (in.no_room) {
    close_attached(session, std::move(in.fds), false);
    return discard(session, request);
  }
  // A request that was sent between accept4() and SO_PASSCRED comes without its sender. Only the first one can be.
  const bool first = !std::exchange(session.any_read, true);
  session.from_peer = in.sender == session.peer.pid || (in.sender == 0 && first);
  control::Reply reply = handle(session, in.message, std::move(in.fds));
  if (reply.status == control::kPending) return answer_later(session, request, std::move(*reply.wait));
  if (reply.status == control::kUnfinished) return finish_later(session, request, std::move(reply.rest));
  if (!answer(session, request, reply)) session.close_pending = true;
}

void Conductor::discard(Session& session, const uroce_request& request) {
  const LogUser caused_by(session.peer.uid);
  log(LogLevel::kWarning,
      "no file descriptor is free for a request of %s, which is refused; raise the limit of open files (ulimit -n)",
      session.program.c_str());
  session.discarding = Session::Discarded{request, monotonic_now() + kPendingLimit};
  watch(session.socket.get(), tag_of(session.id, false), false);
  session.stall_budget->closer().discard_message(session.socket.get(),
                                                 [channel = discarded_, id = session.id] { channel->put(id); });
}

void Conductor::finish_discards() {
  for (const std::uint64_t id : discarded_->take()) {
    Session* const session = state_.session(id);
    if (session == nullptr || !session->discarding) continue;
    const uroce_request request = session->discarding->request;
    session->discarding.reset();
    control::Reply reply;
    reply.refuse(EMFILE, Rejection::limit_reached);
    keep_refusal(*session, request, EMFILE, Rejection::limit_reached,
                 "no file descriptor of the daemon is free for this request; raise its limit of open files (ulimit "
                 "-n)");
    watch(session->socket.get(), tag_of(id, false), true);
    if (!answer(*session, request, reply)) session->close_pending = true;
  }
}

void Conductor::close_truncated(std::uint64_t id) {
  Session* const session = state_.session(id);
  if (session == nullptr) return;
  const LogUser caused_by(session->peer.uid);
  log(LogLevel::kWarning,
      "%s (process %d) removed pages of its queues, and no other pages are free; its session is closed",
      session->program.c_str(), static_cast<int>(session->peer.pid));
  session->close_pending = true;
  state_.rejections().count(Rejection::sessions_closed);
}

void Conductor::note_loss(std::uint64_t id) {
  const Session* const session = state_.session(id);
  if (session == nullptr) return;
  const LogUser caused_by(session->peer.uid);
  log(LogLevel::kWarning,
      "%s (process %d) truncated a file whose memory it had registered, or left holes in it; work requests "
      "that use the missing pages fail",
      session->program.c_str(), static_cast<int>(session->peer.pid));
}

void Conductor::close_stalled() {
  while (const std::uint64_t offender = state_.stall_watch().take_offender()) {
    if (Session* session = state_.session(offender)) {
      const LogUser caused_by(session->peer.uid);
      log(LogLevel::kWarning,
          "memory of %s (process %d) made workers wait for more than user %u may; its session is closed (a file "
          "that "
          "is on a slow disk, or in which fallocate(2) punches holes)",
          session->program.c_str(), static_cast<int>(session->peer.pid), static_cast<unsigned>(session->peer.uid));
      session->close_pending = true;
      state_.rejections().count(Rejection::sessions_closed);
    }
  }
}

bool Conductor::close_slice(Session& session, std::size_t& cm_ids, Nanos now, Nanos end) {
  const control::CommandTimer timer(command_times_, kCloseName, session.id);
  const LogUser caused_by(session.peer.uid);
  return cm_.release_some(session, cm_ids, now) &&
         control::commands::release_some(state_, events_, link_, session, end);
}

void Conductor::close_pending_sessions() {
  close_stalled();
  const Nanos start = monotonic_now(), end = start + kClosingSlice;
  std::size_t cm_ids = cm_service::CmService::kSlice;
  closing_ = false;
  std::vector<std::uint64_t> pending;
  for (const auto& [id, session] : state_.sessions()) {
    if (session->close_pending) pending.push_back(id);
  }
  // Those behind the one that had the last slice come first.
  std::rotate(pending.begin(), std::ranges::lower_bound(pending, next_to_close_), pending.end());
  Nanos now = start;
  for (const std::uint64_t id : pending) {
    if (now >= end) {
      closing_ = true;
      return;
    }
    Session& session = *state_.session(id);
    const std::shared_ptr<mapping::StallBudget> user = session.stall_budget;
    next_to_close_ = id + 1;
    if (close_slice(session, cm_ids, now, end)) {
      close_session(session);
    } else {
      closing_ = true;
    }
    const Nanos done = monotonic_now();
    user->charge_control(done - std::exchange(now, done), done);
  }
}

bool Conductor::publish_pollers(std::uint32_t active) {
  worker::WorkerShared& shared = state_.workers();
  const control::Pollers pollers = state_.process().count_pollers(std::exchange(polling_, active), active);
  const bool few = worker::few_cores(control::usable_cores(), pollers.workers, pollers.sessions);
  shared.few_cores.store(few, std::memory_order_relaxed);
  shared.pollers.store(pollers.workers + pollers.sessions, std::memory_order_relaxed);
  shared.core_left.store(control::usable_cores() > pollers.workers, std::memory_order_relaxed);
  const bool spread = few && active != 0 && state_.config().cpus.empty();
  shared.first_core.store(spread ? pollers.before : worker::WorkerShared::kAnywhere, std::memory_order_relaxed);
  return few;
}

void Conductor::publish_counters(Nanos now) {
  next_counters_ = now + kSecond;
  control::worker_commands::SumCounters sums;
  state_.on_all_workers(sums);
  link_.publish_counters(sums);
  worker::CounterSectionWriter& section = command_times_.section();
  if (!section.is_open()) return;
  const std::vector<admin::CounterValue> values = admin::control_counters(admin(), sums);
  section.publish(monotonic_now(), [&](auto&& put) {
    for (const admin::CounterValue& each : values) put(each.value);
  });
}

void Conductor::heartbeat(Nanos now) {
  const control::CommandTimer timer(command_times_, "heartbeat");
  log_failures();
  if (now >= next_link_check_) {
    next_link_check_ = now + kLinkCheck;
    if (link_.refresh()) last_link_change_ = now;
    link_.share_with_kernel();
  }
  if (now >= next_counters_) publish_counters(now);
  const std::uint32_t active = state_.polling_sessions();
  next_heartbeat_ = std::min(now + (active != 0 ? kActiveHeartbeat : kHeartbeat), next_link_check_);
  const bool few = publish_pollers(active);
  for (auto& [id, session] : state_.sessions()) {
    if (session->discarding && now >= session->discarding->deadline) session->close_pending = true;
    if (session->header == nullptr) {
      // Such a connection is made for one request: urocectl's, or the list of devices.
      session->close_pending = session->close_pending || now - session->idle_since > kHelloLimit;
      continue;
    }
    std::atomic_ref(session->header->heartbeat_ns).store(now, std::memory_order_relaxed);
    std::atomic_ref(session->header->yield).store(few, std::memory_order_relaxed);
    events_.send_owed(*session);
  }
  state_.process().users().retry_closers();
  state_.process().users().count_closing();
  if (accept_paused_) {
    accept_paused_ = false;
    watch(listener_.get(), kListenerTag, true);
  }
}

void Conductor::link_event() {
  eventfd_t ignored;
  ::eventfd_read(state_.config().link_events, &ignored);
  next_link_check_ = std::min(next_link_check_, last_link_change_ + kLeastLinkTime);
  next_heartbeat_ = std::min(next_heartbeat_, next_link_check_);
}

void Conductor::ping_workers() {
  const bool first = pings_.empty();
  for (std::uint32_t i = 0; i < state_.worker_count(); ++i) {
    if (first) pings_.push_back(std::make_unique<worker::Mailbox::Entry>(worker::WorkerCommandRef(ping_)));
    pings_[i]->traced = false;
    pings_[i]->done.store(false, std::memory_order_relaxed);
    state_.worker(i).post(*pings_[i]);
    state_.worker(i).wake();
  }
}

bool Conductor::pings_answered() const {
  return std::ranges::all_of(pings_, [](const auto& ping) { return ping->done.load(std::memory_order_acquire); });
}

Nanos Conductor::advance(Nanos now) {
  if (now >= next_heartbeat_) heartbeat(now);
  if (now >= link_.next_neighbour_deadline()) serve_own_event(kNeighboursTag);
  close_pending_sessions();
  if (state_.take_pollers_changed()) next_heartbeat_ = now;
  if (now >= cm_.next_timeout()) serve_own_event(kGsiTag);
  if (run_slice() || closing_) return now;
  return std::min({next_heartbeat_, cm_.next_timeout(), link_.next_neighbour_deadline()});
}

void Conductor::serve_own_event(std::uint64_t tag) {
  constexpr std::string_view kNames[] = {"accept",     "worker_events", "cm_messages",
                                         "neighbours", "discarded",     "link"};
  static_assert(std::size(kNames) == kFirstSessionTag);
  const control::CommandTimer timer(command_times_, kNames[tag]);
  switch (tag) {
    case kListenerTag: return accept_all();
    case kWorkersTag: return take_worker_events();
    case kGsiTag: return cm_.step(monotonic_now());
    case kNeighboursTag: return link_.check_neighbours(monotonic_now());
    case kDiscardedTag: return finish_discards();
    case kLinkTag: return link_event();
    default: return;
  }
}

/// The session that an event asks to be read; nullptr: the event was another one, and is handled.
Session* Conductor::serve_event(const epoll_event& event) {
  const std::uint64_t tag = event.data.u64;
  if (tag < kFirstSessionTag) return serve_own_event(tag), nullptr;
  Session* const session = state_.session((tag - kFirstSessionTag) / 2);
  if (session == nullptr) return nullptr;
  const bool process_ended = (tag - kFirstSessionTag) % 2 != 0;
  const bool hung_up = (event.events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) != 0;
  if (!process_ended && !hung_up) return session;
  session->close_pending = true;
  return nullptr;
}

// Requests of users that have had more than their share of this thread's time wait while there are others.
void Conductor::serve_events(std::span<const epoll_event> events) {
  std::vector<std::uint64_t> later;
  bool served = false;
  Nanos now = monotonic_now();
  const auto read = [&](Session& session) {
    const std::shared_ptr<mapping::StallBudget> user = session.stall_budget;  // the session may end
    read_session(session);
    const Nanos end = monotonic_now();
    user->charge_control(end - std::exchange(now, end), end);
  };
  for (const epoll_event& event : events) {
    Session* const session = serve_event(event);
    if (session == nullptr || session->close_pending) continue;
    if (session->stall_budget->over_control_share(now)) {
      later.push_back(session->id);
      continue;
    }
    served = true;
    read(*session);
  }
  if (served) return;
  const Nanos end = now + kMillisecond;
  for (const std::uint64_t id : later) {
    if (Session* session = state_.session(id)) read(*session);
    if (now > end) return;
  }
}

}  // namespace uroce::daemon
