#include "client/session.h"

#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <new>

#include "client/call_log.h"
#include "platform/clock.h"

namespace uroce::client {

// All sessions of this process: the child of a fork abandons those of its parent.
class SessionRegistry {
 public:
  static SessionRegistry& instance() {
    static SessionRegistry* const registry = new SessionRegistry;  // never freed: the fork handlers keep using it
    return *registry;
  }
  void add(Session* session) {
    const std::lock_guard lock(mutex_);
    session->next_ = first_;
    first_ = session;
  }
  void remove(Session* session) {
    const std::lock_guard lock(mutex_);
    for (Session** at = &first_; *at != nullptr; at = &(*at)->next_) {
      if (*at == session) {
        *at = session->next_;
        return;
      }
    }
  }

 private:
  SessionRegistry() { pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child); }
  static void before_fork() {
    instance().mutex_.lock();
    for (Session* s = instance().first_; s != nullptr; s = s->next_) s->chunk_mutex_.lock();
  }
  static void after_fork_in_parent() { unlock_all(); }
  static void after_fork_in_child() {
    for (Session* s = instance().first_; s != nullptr; s = s->next_) s->abandon_in_child();
    unlock_all();
  }
  static void unlock_all() {
    for (Session* s = instance().first_; s != nullptr; s = s->next_) s->chunk_mutex_.unlock();
    instance().mutex_.unlock();
  }

  std::mutex mutex_;
  Session* first_ = nullptr;
};

int Session::open(const std::string& socket_path, std::unique_ptr<Session>& out) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_path.size() >= sizeof(address.sun_path)) return ENAMETOOLONG;
  std::memcpy(address.sun_path, socket_path.c_str(), socket_path.size() + 1);

  std::unique_ptr<Session> session(new Session);
  session->socket_ = sys::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (session->socket_ < 0) return errno;
  if (sys::connect(session->socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    const int error = errno;
    call_log::set_reason(error, "cannot connect to %s%s", socket_path.c_str(),
                         error == EACCES ? ": its mode or group keeps this user out (uroced --socket-mode)"
                                         : ": is the daemon running?");
    return error;
  }
  SessionRegistry::instance().add(session.get());
  const int error = session->hello();
  if (error == 0) out = std::move(session);
  return error;
}

Session::~Session() {
  SessionRegistry::instance().remove(this);
  // The children's copies of the socket must not keep the session.
  if (connection_state() != ConnectionState::kForked) sys::shut_down(socket_);
  sys::close(socket_);
  sys::close(event_fd_);
  sys::close(share_fd_);
  for (const int fd : worker_events_) sys::close(fd);
  for (const Chunk& chunk : chunks_) munmap(chunk.base, chunk.bytes);
}

int Session::hello() {
  uroce_hello_request request{};
  request.version = UROCE_ABI_VERSION;
  request.pid = static_cast<std::uint32_t>(getpid());
  std::strncpy(request.program, program_invocation_short_name, sizeof(request.program) - 1);
  uroce_hello_response reply{};
  ReceivedFds fds;
  if (const int error = call(UROCE_CMD_HELLO, std::as_bytes(std::span(&request, 1)),
                             std::as_writable_bytes(std::span(&reply, 1)), {}, &fds, &reply.chunks);
      error != 0) {
    return error;
  }
  if (reply.version != UROCE_ABI_VERSION || reply.workers == 0 || reply.workers > UROCE_MAX_WORKERS) return EPROTO;
  if (fds.count() != reply.chunks.count + reply.workers + 1) return EPROTO;
  for (std::uint32_t i = 0; i < reply.workers; ++i) worker_events_.push_back(fds.take(reply.chunks.count + i));
  event_fd_ = fds.take(reply.chunks.count + reply.workers);
  header_ = static_cast<const uroce_session_header*>(at(reply.header, sizeof(uroce_session_header)));
  doorbells_ =
      static_cast<uroce_doorbells*>(at(reply.doorbells, std::size_t{reply.workers} * sizeof(uroce_doorbells)));
  if (header_ == nullptr || doorbells_ == nullptr) return EPROTO;
  // Pairs with the daemon's release store of the version, the last header field that it writes.
  const std::uint32_t version =
      std::atomic_ref(const_cast<std::uint32_t&>(header_->version)).load(std::memory_order_acquire);
  if (version != UROCE_ABI_VERSION || header_->magic != UROCE_ABI_MAGIC) return EPROTO;
  workers_ = reply.workers;
  return 0;
}

namespace {

/// What the child of a fork may ask for, and the command that destroys what it then has (0: nothing). Queues are
/// in memory that the parent has mapped, and memory would have to be that of the parent.
struct ChildCommand {
  std::uint32_t command, destroyed_by;
};
constexpr ChildCommand kChildCommands[] = {
    {UROCE_CMD_QUERY_DEVICE, 0},
    {UROCE_CMD_QUERY_PORT, 0},
    {UROCE_CMD_QUERY_GID, 0},
    {UROCE_CMD_QUERY_QP, 0},
    {UROCE_CMD_QUERY_SRQ, 0},
    {UROCE_CMD_RESOLVE_NEIGHBOUR, 0},
    {UROCE_CMD_READ_COUNTERS, 0},
    {UROCE_CMD_IMPORT_DM, 0},
    {UROCE_CMD_ALLOC_PD, UROCE_CMD_DEALLOC_PD},
    {UROCE_CMD_ALLOC_DM, UROCE_CMD_FREE_DM},
    {UROCE_CMD_ALLOC_MW, UROCE_CMD_DEALLOC_MW},
    {UROCE_CMD_ALLOC_NULL_MR, UROCE_CMD_DEREG_MR},
    {UROCE_CMD_CREATE_AH, UROCE_CMD_DESTROY_AH},
    {UROCE_CMD_CREATE_COUNTERS, UROCE_CMD_DESTROY_COUNTERS},
    {UROCE_CMD_OPEN_XRCD, UROCE_CMD_CLOSE_XRCD},
};
const ChildCommand* in_child(std::uint32_t command) {
  const auto* const found = std::ranges::find(kChildCommands, command, &ChildCommand::command);
  return found != std::end(kChildCommands) ? found : nullptr;
}

}  // namespace

int Session::call(std::uint32_t command, std::span<const std::byte> body, std::span<std::byte> reply,
                  std::span<const int> fds, ReceivedFds* received, const uroce_new_chunks* chunks) {
  const bool forked = connection_state() == ConnectionState::kForked;
  const ChildCommand* const allowed = forked ? in_child(command) : nullptr;
  if (forked && allowed == nullptr) return ENODEV;
  const std::lock_guard lock(command_lock_);
  if (connection_state() == ConnectionState::kDead) return EIO;
  if (forked) {
    const std::lock_guard lists(chunk_mutex_);
    own_.reserve(own_.size() + 1);
  }
  const int error = exchange(command, body, reply, fds, received);
  if (error != 0 && call_log::on()) ask_why(error);
  if (error == 0 && forked && allowed->destroyed_by != 0) {
    Own made{allowed->destroyed_by, 0, forks_};
    std::memcpy(&made.handle, reply.data(), sizeof(made.handle));  // the first field of every such answer
    const std::lock_guard lists(chunk_mutex_);
    own_.push_back(made);
  }
  return error == 0 && chunks != nullptr ? map_chunks(*chunks, *received) : error;
}

// For UROCE_LOG: the daemon's words about the request that it has just refused.
void Session::ask_why(int error) {
  if (connection_state() == ConnectionState::kDead) return;
  const std::uint32_t refused = sequence_;
  uroce_explain_response why{};
  if (exchange(UROCE_CMD_EXPLAIN, {}, std::as_writable_bytes(std::span(&why, 1)), {}, nullptr) != 0) return;
  if (why.sequence != refused || why.status != error) return;
  call_log::set_reason(error, "%.*s", static_cast<int>(sizeof(why.text)), why.text);
}

int Session::exchange(std::uint32_t command, std::span<const std::byte> body, std::span<std::byte> reply,
                      std::span<const int> fds, ReceivedFds* received) {
  if (fds.size() > UROCE_MAX_MESSAGE_FDS || sizeof(uroce_request) + body.size() > UROCE_MAX_MESSAGE) return E2BIG;
  sequence_ = command_lock_.next_sequence();
  const uroce_request request{command, sequence_};
  iovec io[2] = {{const_cast<uroce_request*>(&request), sizeof(request)},
                 {const_cast<std::byte*>(body.data()), body.size()}};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * UROCE_MAX_MESSAGE_FDS)] = {};
  msghdr message{};
  message.msg_iov = io;
  message.msg_iovlen = body.empty() ? 1 : 2;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  if (sys::send_message(socket_, &message, MSG_NOSIGNAL) < 0) {
    // Too many descriptors in flight, or no memory: the connection itself is intact.
    if (errno == ETOOMANYREFS || errno == ENOMEM || errno == ENOBUFS || errno == EBADF) return errno;
    set_dead();
    return EIO;
  }
  ReceivedFds dropped;
  return receive(command, reply, received != nullptr ? *received : dropped);
}

ssize_t Session::receive_message(msghdr& message, ReceivedFds& received) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * UROCE_MAX_MESSAGE_FDS)];
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t got = sys::receive_message(socket_, &message, MSG_CMSG_CLOEXEC);
  if (got <= 0) return got;
  for (cmsghdr* h = CMSG_FIRSTHDR(&message); h != nullptr; h = CMSG_NXTHDR(&message, h)) {
    if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof(fd));
      received.add(fd);
    }
  }
  return got;
}

int Session::receive(std::uint32_t command, std::span<std::byte> reply, ReceivedFds& received) {
  uroce_response response{};
  iovec io[2] = {{&response, sizeof(response)}, {reply.data(), reply.size()}};
  msghdr message{};
  message.msg_iov = io;
  message.msg_iovlen = reply.empty() ? 1 : 2;
  ssize_t got;
  for (;;) {
    if (!reply.empty()) std::memset(reply.data(), 0, reply.size());
    got = receive_message(message, received);
    if (got < static_cast<ssize_t>(sizeof(response)) || !command_lock_.is_orphan(response.sequence, sequence_))
      break;
    received.clear();
  }
  if (got < static_cast<ssize_t>(sizeof(response)) || response.command != command ||
      response.sequence != sequence_ || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    received.clear();
    set_dead();  // the daemon is gone, or answers can no longer be matched to requests
    if (got <= 0 || (message.msg_flags & MSG_CTRUNC) == 0) return EIO;
    call_log::set_reason(EMFILE, "no descriptor is free for the memory that the daemon shares (ulimit -n)");
    return EMFILE;
  }
  return response.status < 0 ? EPROTO : response.status;
}

int Session::release(std::uint32_t command, std::uint32_t handle) {
  if (connection_state() == ConnectionState::kForked) return release_in_child(command, handle);
  const uroce_handle request{handle, 0};
  const int error = call(command, std::as_bytes(std::span(&request, 1)), {});
  return lost() ? 0 : error;
}

int Session::release_in_child(std::uint32_t command, std::uint32_t handle) {
  const Own own{command, handle, forks_};
  {
    const std::lock_guard lists(chunk_mutex_);
    if (std::ranges::find(own_, own) == own_.end()) return 0;
  }
  const std::lock_guard lock(command_lock_);
  const uroce_handle request{handle, 0};
  const int error = exchange(command, std::as_bytes(std::span(&request, 1)), {}, {}, nullptr);
  if (error != 0 && call_log::on()) ask_why(error);
  if (error != 0 && error != EIO) return error;
  const std::lock_guard lists(chunk_mutex_);
  std::erase(own_, own);
  return 0;
}

int Session::map_chunks(const uroce_new_chunks& chunks, ReceivedFds& fds) {
  if (chunks.count > std::size(chunks.chunk) || fds.count() < chunks.count) return EPROTO;
  const std::lock_guard lock(chunk_mutex_);
  try {
    chunks_.reserve(chunks_.size() + chunks.count);
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
  for (std::uint32_t i = 0; i < chunks.count; ++i) {
    if (chunks.first + i != chunks_.size() || chunks_.size() >= kMaxChunks) return EPROTO;
    const bool writable = chunks.chunk[i].client_writes != 0;
    const int fd = fds.take(i);
    void* const base =
        mmap(nullptr, chunks.chunk[i].bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    const int error = errno;
    if (chunks_.empty()) {
      share_fd_ = fd;
    } else {
      sys::close(fd);
    }
    if (base == MAP_FAILED) return error;
    chunks_.push_back({static_cast<std::byte*>(base), chunks.chunk[i].bytes, writable});
  }
  return 0;
}

void* Session::at(const uroce_place& place, std::size_t bytes) const {
  const std::lock_guard lock(chunk_mutex_);
  if (place.chunk >= chunks_.size()) return nullptr;
  const Chunk& chunk = chunks_[place.chunk];
  if (place.offset > chunk.bytes || bytes > chunk.bytes - place.offset) return nullptr;
  return chunk.base + place.offset;
}

void Session::stamp(std::uint64_t& time) {
  std::atomic_ref(time).store(monotonic_now(), std::memory_order_relaxed);
}

void Session::write_event(std::uint32_t worker) {
  const std::uint64_t one = 1;
  (void)sys::write(worker_events_[worker], &one, sizeof(one));
}

void Session::set_dead() {
  ConnectionState alive = ConnectionState::kAlive;
  connection_state_.compare_exchange_strong(alive, ConnectionState::kDead);
}

void Session::check_alive() {
  constexpr Nanos kInterval = 50 * kMillisecond;
  const Nanos now = monotonic_now();
  Nanos last = last_check_.load(std::memory_order_relaxed);
  if (now - last < kInterval || !last_check_.compare_exchange_strong(last, now)) return;
  if (lost()) return;
  if (std::atomic_ref(const_cast<std::uint32_t&>(header_->dead)).load(std::memory_order_relaxed) != 0) {
    set_dead();
    return;
  }
  const Nanos beat =
      std::atomic_ref(const_cast<std::uint64_t&>(header_->heartbeat_ns)).load(std::memory_order_relaxed);
  if (now - beat < 2 * kInterval || beat > now) return;
  pollfd peer{socket_, POLLRDHUP, 0};
  timespec no_wait{};
  if (::syscall(SYS_ppoll, &peer, 1, &no_wait, nullptr, 0) > 0) set_dead();
}

// Runs in the child before fork() returns, so only async-signal-safe calls are allowed. The writable chunks are the
// parent's queues: they are replaced by private zero pages, so that a stray write of the child has no effect. The
// socket stays open: the daemon ends the session with the process that opened it.
void Session::abandon_in_child() {
  connection_state_.store(ConnectionState::kForked);
  ++forks_;
  for (const Chunk& chunk : chunks_) {
    if (!chunk.writable) continue;
    const void* fresh = mmap(chunk.base, chunk.bytes, PROT_READ | PROT_WRITE,
                             MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (fresh == MAP_FAILED) munmap(chunk.base, chunk.bytes);  // then a stray write faults
  }
}

}  // namespace uroce::client
