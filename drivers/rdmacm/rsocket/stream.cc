// Streams: creation, state, completions, shutdown and readiness.
#include "rsocket/stream.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "rsocket/service.h"

namespace uroce::rdmacm {

std::shared_ptr<Stream> Stream::make(int domain) {
  Service* service = Service::get();
  rdma_cm_id* id = nullptr;
  if (service == nullptr || rdma_create_id(service->channel(), &id, nullptr, RDMA_PS_TCP) != 0) return nullptr;
  auto stream = std::make_shared<Stream>(domain, id);
  if (stream->take_number()) return stream;
  const int error = errno;
  stream->close();
  errno = error;
  return nullptr;
}

Stream::Stream(int domain, rdma_cm_id* id) : Socket(domain, SOCK_STREAM), id_(id) {
  id_->context = this;
  const Defaults& d = defaults();
  settings_.sizes = {d.send_buffer, d.receive_buffer, d.sq_size,
                     d.rq_size,     d.inline_size,    iomap_count(iomap_scale(d.iomap_entries))};
}

bool Stream::take_number() {
  number_ = high_number(eventfd(0, EFD_NONBLOCK));
  return number_ >= 0;
}

Stream::~Stream() {
  if (number_ >= 0) ::close(number_);
}

int Stream::bind(const sockaddr* addr, socklen_t length) {
  if (addr == nullptr || length < sizeof(sockaddr_in)) return -EINVAL;
  const std::lock_guard lock(mutex_);
  if (state_ != State::kIdle) return -EINVAL;
  sockaddr_storage copy{};
  std::memcpy(&copy, addr, std::min<std::size_t>(length, sizeof(copy)));
  return rdma_bind_addr(id_, reinterpret_cast<sockaddr*>(&copy)) == 0 ? 0 : -errno;
}

int Stream::listen(int backlog) {
  const std::lock_guard lock(mutex_);
  backlog_ = static_cast<std::size_t>(std::clamp(backlog, 16, 4096));
  if (state_ == State::kListening) return 0;
  if (state_ != State::kIdle) return -EINVAL;
  // A request may arrive before rdma_listen() returns.
  state_ = State::kListening;
  if (rdma_listen(id_, static_cast<int>(backlog_)) == 0) return 0;
  state_ = State::kIdle;
  return -errno;
}

int Stream::accept(std::shared_ptr<Socket>& accepted) {
  std::unique_lock lock(mutex_);
  if (state_ != State::kListening) return -EINVAL;
  if (const int failed = wait(lock, nonblocking(0), [this] { return !accepted_.empty(); })) return failed;
  const std::shared_ptr<Stream> stream = accepted_.front();
  if (!stream->take_number()) return -errno;
  accepted_.pop_front();
  accepted = stream;
  return 0;
}

bool Stream::nonblocking(int flags) const {
  return (flags & MSG_DONTWAIT) != 0 || (status_flags & O_NONBLOCK) != 0;
}

int Stream::await_connection(std::unique_lock<std::mutex>& lock, bool nonblock) {
  if (state_ == State::kConnecting) {
    if (const int failed = wait(lock, nonblock, [this] { return state_ != State::kConnecting; })) return failed;
  }
  switch (state_) {
    case State::kConnected:
    case State::kDisconnected:
    case State::kFailed: return 0;
    case State::kClosed: return -EBADF;
    default: return -ENOTCONN;
  }
}

// Handles completions, replaces consumed receives, and returns credits.
void Stream::progress() {
  if (!endpoint_.exists() || state_ == State::kConnecting) return;
  std::array<ibv_wc, 32> wcs;
  std::uint32_t receives = 0;
  bool changed = false;
  for (int count; (count = ibv_poll_cq(endpoint_.cq(), wcs.size(), wcs.data())) > 0;) {
    changed = true;
    for (int i = 0; i < count; ++i) handle(wcs[static_cast<std::size_t>(i)], receives);
  }
  if (state_ == State::kConnected && receives > 0) {
    if (const int failed = endpoint_.post_receives(receives)) fail(-failed);
  }
  send_updates();
  if (changed) watchers_.wake_others();
}

void Stream::handle(const ibv_wc& wc, std::uint32_t& receives) {
  if (wc.wr_id == Endpoint::kReceiveWrId) {
    if (wc.status != IBV_WC_SUCCESS) return;
    ++receives;
    if (state_ == State::kConnected && (wc.wc_flags & IBV_WC_WITH_IMM) != 0) handle_message(be32toh(wc.imm_data));
    return;
  }
  flow_.completed(wc.wr_id);
  if (wc.status == IBV_WC_SUCCESS || state_ != State::kConnected) return;
  fail(wc.status == IBV_WC_RETRY_EXC_ERR ? ETIMEDOUT : ECONNRESET);
}

void Stream::handle_message(std::uint32_t imm) {
  switch (flow_.received(imm)) {
    case StreamFlow::Event::kCredits: flow_.adopt(endpoint_.targets(), swap_); break;
    case StreamFlow::Event::kShutdown:
      readable_ = false;
      if (!writable_) end_connection(State::kDisconnected);
      break;
    case StreamFlow::Event::kDisconnect: end_connection(State::kDisconnected); break;
    case StreamFlow::Event::kProtocolError: fail(EPROTO); break;
    default: break;
  }
}

void Stream::send_updates() {
  while (state_ == State::kConnected) {
    const auto update = flow_.update();
    if (!update) return;
    if (const int failed = endpoint_.post_update(*update, peer_list_, swap_)) fail(-failed);
  }
}

void Stream::arm() {
  if (armed_ || !endpoint_.exists()) return;
  armed_ = ibv_req_notify_cq(endpoint_.cq(), 0) == 0;
}

void Stream::take_events() {
  if (!armed_ || !endpoint_.exists()) return;
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  if (ibv_get_cq_event(endpoint_.channel(), &cq, &context) != 0) return;
  ibv_ack_cq_events(cq, 1);
  armed_ = false;
}

void Stream::sleep_on(std::vector<pollfd>& fds) const {
  if (endpoint_.exists()) fds.push_back({endpoint_.channel()->fd, POLLIN, 0});
}

void Stream::fail(int error) {
  error_ = failure_ = error;
  end_connection(State::kFailed);
}

void Stream::end_connection(State state) {
  state_ = state;
  readable_ = writable_ = false;
  watchers_.wake_others();
}

int Stream::send_error() const {
  if (state_ == State::kClosed) return -EBADF;
  if (state_ == State::kFailed) return -failure_;
  return state_ == State::kDisconnected ? -ECONNRESET : -EPIPE;
}

int Stream::shutdown(int how) {
  std::unique_lock lock(mutex_);
  progress();
  if (state_ != State::kConnected)
    return state_ == State::kDisconnected || state_ == State::kFailed ? 0 : -ENOTCONN;
  if (how != SHUT_WR) readable_ = false;
  const bool announced = !writable_;  // the peer knows that nothing more will be sent
  if (how != SHUT_RD) writable_ = false;
  watchers_.wake_others();
  const bool end = !readable_ && !writable_;
  if (end || (!writable_ && !announced)) {
    const auto over = [this] { return flow_.can_control() || state_ != State::kConnected; };
    if (const int failed = wait(lock, false, over)) return failed;
    if (state_ == State::kConnected) {
      const std::uint32_t imm = message(end ? ControlMessage::kDisconnect : ControlMessage::kShutdown);
      if (const int failed = endpoint_.post_control(flow_.control(), &imm)) fail(-failed);
    }
    const bool abort =
        settings_.linger_set && settings_.linger_time.l_onoff != 0 && settings_.linger_time.l_linger == 0;
    const auto sent = [this] { return flow_.all_sent() || state_ != State::kConnected; };
    if (!abort) {
      while (wait(lock, false, sent) == -EINTR) {
      }
    }
  }
  if (end && state_ == State::kConnected) {
    end_connection(State::kDisconnected);
    rdma_disconnect(id_);
  }
  return 0;
}

void Stream::close() {
  bool connected;
  {
    const std::lock_guard lock(mutex_);
    connected = state_ == State::kConnected;
  }
  if (connected) shutdown(SHUT_RDWR);
  if (Service* service = Service::get()) service->keep_alive(shared_from_this(), 0);
  std::vector<std::shared_ptr<Stream>> orphans;
  {
    const std::lock_guard lock(mutex_);
    end_connection(State::kClosed);
    orphans.assign(accepted_.begin(), accepted_.end());
    accepted_.clear();
  }
  detach_id();
  {
    // After detach_id() no stream is added.
    const std::lock_guard lock(mutex_);
    orphans.insert(orphans.end(), accepting_.begin(), accepting_.end());
    accepting_.clear();
  }
  for (const auto& orphan : orphans) orphan->close();
  const std::lock_guard send_lock(send_mutex_);
  const std::lock_guard receive_lock(receive_mutex_);
  const std::lock_guard lock(mutex_);
  drop_mappings();
  endpoint_.destroy();
  rdma_destroy_id(id_);
}

// Afterwards no event reaches this socket.
void Stream::detach_id() {
  if (Service* service = Service::get()) service->forget(id_);
}

int Stream::peer_name(sockaddr* addr, socklen_t* length) {
  const std::lock_guard lock(mutex_);
  if (state_ == State::kIdle || state_ == State::kListening) return -ENOTCONN;
  return copy_address(rdma_get_peer_addr(id_), addr, length);
}

int Stream::local_name(sockaddr* addr, socklen_t* length) {
  const std::lock_guard lock(mutex_);
  const sockaddr* local = rdma_get_local_addr(id_);
  if (local != nullptr && local->sa_family != 0) return copy_address(local, addr, length);
  sockaddr_storage none{};
  none.ss_family = static_cast<sa_family_t>(domain());
  return copy_address(reinterpret_cast<const sockaddr*>(&none), addr, length);
}

short Stream::ready(short events) {
  const std::lock_guard lock(mutex_);
  return ready_locked(events);
}

short Stream::ready_locked(short events) {
  progress();
  short found = 0;
  switch (state_) {
    case State::kListening:
      if (!accepted_.empty()) found = POLLIN;
      return static_cast<short>(found & events);
    case State::kConnected:
    case State::kDisconnected:
    case State::kFailed:
      if (flow_.readable() > 0 || !readable_) found |= POLLIN;
      if (!writable_ || flow_.can_send()) found |= POLLOUT;
      found &= events;
      // Pollers treat POLLHUP as end of file: data received before is reported first.
      if (state_ == State::kDisconnected && flow_.readable() == 0) found |= POLLHUP;
      if (state_ == State::kFailed) found |= POLLERR;
      return found;
    case State::kClosed: return POLLNVAL;
    default: return 0;
  }
}

short Stream::watch(short events, int waker, std::vector<pollfd>& sleep_on) {
  const std::lock_guard lock(mutex_);
  watchers_.add(waker);
  take_events();
  arm();
  this->sleep_on(sleep_on);
  return ready_locked(events);
}

void Stream::unwatch(int waker) {
  const std::lock_guard lock(mutex_);
  watchers_.remove(waker);
}

void Stream::send_keepalive() {
  const std::lock_guard lock(mutex_);
  progress();
  if (state_ != State::kConnected || !flow_.can_control()) return;
  if (const int failed = endpoint_.post_control(flow_.control(), nullptr)) fail(-failed);
}

}  // namespace uroce::rdmacm
