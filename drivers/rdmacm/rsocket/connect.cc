// Connection setup of streams: the events of the rdma_cm_id, on the Service's thread.
#include <netinet/in.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "rsocket/service.h"
#include "rsocket/stream.h"

namespace uroce::rdmacm {
namespace {

constexpr int kResolveMs = 1000, kMostResolveTries = 4;

rdma_conn_param parameters(std::uint8_t (&private_data)[ConnectPrivateData::kBytes]) {
  rdma_conn_param param{};
  param.private_data = private_data;
  param.private_data_len = ConnectPrivateData::kBytes;
  param.flow_control = 1;
  param.retry_count = 7;
  // Control messages take no credit, so the peer may have no receive posted until it polls again.
  param.rnr_retry_count = 7;
  return param;
}

int errno_of(const rdma_cm_event& event) {
  switch (event.event) {
    case RDMA_CM_EVENT_REJECTED: return ECONNREFUSED;
    case RDMA_CM_EVENT_UNREACHABLE:
      return event.status == -ETIMEDOUT || event.status >= 0 ? ETIMEDOUT : -event.status;
    default: return event.status < 0 ? -event.status : EHOSTUNREACH;
  }
}

}  // namespace

int Stream::connect(const sockaddr* addr, socklen_t length) {
  if (addr == nullptr || length < sizeof(sockaddr_in)) return -EINVAL;
  std::unique_lock lock(mutex_);
  switch (state_) {
    case State::kIdle: break;
    case State::kConnecting: return -EALREADY;
    case State::kConnected:
      if (connect_reported_) return -EISCONN;
      connect_reported_ = true;
      return 0;
    case State::kFailed: return -failure_;
    default: return -EINVAL;
  }
  state_ = State::kConnecting;
  std::memcpy(&destination_, addr, std::min<std::size_t>(length, sizeof(destination_)));
  resolve_tries_ = 0;
  const int begun = rdma_resolve_addr(id_, nullptr, reinterpret_cast<sockaddr*>(&destination_), kResolveMs);
  if (begun != 0) {
    fail(errno);
  } else if (nonblocking(0)) {
    return -EINPROGRESS;
  } else if (const int failed = wait(lock, false, [this] { return state_ != State::kConnecting; })) {
    return failed;
  }
  connect_reported_ = true;
  if (state_ != State::kFailed) return 0;
  error_ = 0;
  return -failure_;
}

void Stream::on_event(const rdma_cm_event& event, std::vector<std::shared_ptr<Stream>>& failed) {
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED: return on_address_resolved();
    case RDMA_CM_EVENT_ROUTE_RESOLVED: return on_route_resolved();
    case RDMA_CM_EVENT_CONNECT_REQUEST: return on_request(event, failed);
    case RDMA_CM_EVENT_ESTABLISHED: return on_established(event, failed);
    case RDMA_CM_EVENT_DISCONNECTED: return on_disconnected();
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_REJECTED:
    case RDMA_CM_EVENT_DEVICE_REMOVAL: return on_error(event, failed);
    default: return;
  }
}

void Stream::on_address_resolved() {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kConnecting) return;
  resolve_tries_ = 0;
  if (!settings_.route.empty() && rdma_set_option(id_, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, settings_.route.data(),
                                                  settings_.route.size()) == 0) {
    return;  // setting the route generates ROUTE_RESOLVED
  }
  if (rdma_resolve_route(id_, kResolveMs) != 0) fail(errno);
}

void Stream::on_route_resolved() {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kConnecting) return;
  if (const int failed = endpoint_.create(id_, settings_.sizes)) return fail(-failed);
  std::uint8_t private_data[ConnectPrivateData::kBytes];
  endpoint_.private_data().encode(private_data);
  rdma_conn_param param = parameters(private_data);
  if (rdma_connect(id_, &param) != 0) fail(errno);
}

void Stream::adopt_private_data(const ConnectPrivateData& private_data) {
  const EndpointConfig& sizes = endpoint_.config();
  flow_.start({sizes.send_buffer, sizes.receive_buffer, static_cast<std::uint16_t>(sizes.sq_size),
               static_cast<std::uint16_t>(sizes.rq_size)});
  flow_.connect(private_data.credits, private_data.buffer, private_data.list.length);
  peer_list_ = private_data.list;
  const bool big = (private_data.flags & ConnectPrivateData::kBigEndian) != 0;
  swap_ = big != (std::endian::native == std::endian::big);
  if ((private_data.flags & ConnectPrivateData::kHasIomap) != 0)
    peer_iomap_entries_ = iomap_count(private_data.iomap_scale);
}

void Stream::on_established(const rdma_cm_event& event, std::vector<std::shared_ptr<Stream>>& failed) {
  std::shared_ptr<Stream> listener;
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::kConnecting) return;
    listener = listener_.lock();
    if (listener == nullptr) {
      const auto private_data =
          ConnectPrivateData::decode(event.param.conn.private_data, event.param.conn.private_data_len);
      if (!private_data || private_data->list.length == 0) {
        rdma_disconnect(id_);
        return fail(EPROTO);
      }
      adopt_private_data(*private_data);
    }
    state_ = State::kConnected;
    readable_ = writable_ = true;
    progress();
    watchers_.wake_others();
  }
  if (listener == nullptr) return;
  const std::lock_guard lock(listener->mutex_);
  const auto self = shared_from_this();
  std::erase(listener->accepting_, self);
  if (listener->state_ == State::kListening) {
    listener->accepted_.push_back(self);
    listener->watchers_.wake_others();
  } else {
    failed.push_back(self);
  }
}

void Stream::on_disconnected() {
  const std::lock_guard lock(mutex_);
  progress();  // data received before the disconnect can still be read
  if (state_ == State::kConnected) end_connection(State::kDisconnected);
  rdma_disconnect(id_);
}

void Stream::on_error(const rdma_cm_event& event, std::vector<std::shared_ptr<Stream>>& failed) {
  std::unique_lock lock(mutex_);
  if (state_ == State::kConnected && event.event == RDMA_CM_EVENT_DEVICE_REMOVAL) return fail(ENODEV);
  if (state_ != State::kConnecting) return;
  const bool timed_out = event.status == -ETIMEDOUT;
  if (event.event == RDMA_CM_EVENT_ADDR_ERROR && timed_out && ++resolve_tries_ < kMostResolveTries) {
    auto* to = reinterpret_cast<sockaddr*>(&destination_);
    if (rdma_resolve_addr(id_, nullptr, to, kResolveMs << resolve_tries_) == 0) return;
  } else if (event.event == RDMA_CM_EVENT_ROUTE_ERROR && timed_out && ++resolve_tries_ < kMostResolveTries) {
    if (rdma_resolve_route(id_, kResolveMs << resolve_tries_) == 0) return;
  }
  lock.unlock();
  give_up(errno_of(event), failed);
}

// A connection attempt has failed. A stream that was not accepted yet is closed, too.
void Stream::give_up(int error, std::vector<std::shared_ptr<Stream>>& failed) {
  std::shared_ptr<Stream> listener;
  {
    const std::lock_guard lock(mutex_);
    fail(error);
    listener = listener_.lock();
  }
  if (listener == nullptr) return;
  const auto self = shared_from_this();
  {
    const std::lock_guard lock(listener->mutex_);
    // Otherwise the listener's close() closes it.
    if (std::erase(listener->accepting_, self) == 0) return;
  }
  failed.push_back(self);
}

void Stream::on_request(const rdma_cm_event& event, std::vector<std::shared_ptr<Stream>>& failed) {
  rdma_cm_id* id = event.id;
  Settings inherited;
  {
    const std::lock_guard lock(mutex_);
    const bool room = state_ == State::kListening && accepting_.size() + accepted_.size() < backlog_;
    if (!room) {
      rdma_reject(id, nullptr, 0);
      return;
    }
    inherited = settings_;
  }
  auto child = std::make_shared<Stream>(domain(), id);
  child->listener_ = weak_from_this();
  {
    const std::lock_guard lock(mutex_);
    accepting_.push_back(child);
  }
  if (const int error = child->begin_accept(event, inherited)) {
    rdma_reject(id, nullptr, 0);
    child->give_up(-error, failed);
  }
}

int Stream::begin_accept(const rdma_cm_event& event, const Settings& inherited) {
  const std::lock_guard lock(mutex_);
  const auto peer = ConnectPrivateData::decode(event.param.conn.private_data, event.param.conn.private_data_len);
  if (!peer || peer->list.length == 0) return -EPROTO;
  settings_.sizes = inherited.sizes;
  state_ = State::kConnecting;
  if (const int failed = endpoint_.create(id_, settings_.sizes)) return failed;
  adopt_private_data(*peer);
  std::uint8_t private_data[ConnectPrivateData::kBytes];
  endpoint_.private_data().encode(private_data);
  rdma_conn_param param = parameters(private_data);
  return rdma_accept(id_, &param) == 0 ? 0 : -errno;
}

}  // namespace uroce::rdmacm
