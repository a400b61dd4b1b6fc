#include "connection.h"

#include <netdb.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace uroce::ping {
namespace {

constexpr int kEventTimeoutMs = 10'000;  // ms, for CM events
constexpr int kResolveTries = 2000;
constexpr int kReceives = 4;
constexpr std::uint8_t kReads = 4;

volatile sig_atomic_t g_interrupted = 0;

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

AddressList address_of(const Options& options) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (options.role == Role::kServer) hints.ai_flags = AI_PASSIVE;
  const char* host = options.address.empty() ? nullptr : options.address.c_str();
  const int problem = getaddrinfo(host, std::to_string(options.port).c_str(), &hints, &list);
  if (problem != 0) throw Failure("addr=" + options.address + ": " + gai_strerror(problem));
  return {list, freeaddrinfo};
}

/// Why there is no connection.
std::string reason(rdma_cm_event_type got, int status, const Options& options) {
  constexpr int kInvalidServiceId = 8;  // IBTA vol. 1, 12.6.7.2
  const std::string port = " port " + std::to_string(options.port);
  if (got == RDMA_CM_EVENT_REJECTED && status == kInvalidServiceId) {
    return "no program listens on " + options.address + port;
  }
  if (got == RDMA_CM_EVENT_ADDR_ERROR && status == -ETIMEDOUT) {
    return options.address + " does not answer ARP or neighbour discovery: see `urocectl show neighbours`";
  }
  if (got == RDMA_CM_EVENT_UNREACHABLE) {
    return "no answer from " + options.address + port + ": its daemon has ended, or packets are lost";
  }
  return std::string("the connection has failed: ") + rdma_event_str(got) + ", status " + std::to_string(status);
}

}  // namespace

void fail_errno(const std::string& what) { throw Failure(what + ": " + std::strerror(errno)); }

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = [](int) { g_interrupted = 1; };
  sigaction(SIGINT, &action, nullptr);  // no SA_RESTART: system calls return EINTR
  sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return g_interrupted != 0; }

Connection::Connection(const Options& options) : options_(options) {
  events_ = rdma_create_event_channel();
  if (events_ == nullptr && errno == ENODEV) {
    throw Failure("there is no RDMA device; start it by uroce-run, such as `uroce-run --own uroce-ping ...`");
  }
  if (events_ == nullptr) fail_errno("rdma_create_event_channel");
  if (rdma_create_id(events_, &id_, nullptr, RDMA_PS_TCP) != 0) fail_errno("rdma_create_id");
}

Connection::~Connection() {
  if (id_ != nullptr && id_->qp != nullptr) rdma_destroy_qp(id_);
  if (cq_ != nullptr) ibv_destroy_cq(cq_);
  if (channel_ != nullptr) ibv_destroy_comp_channel(channel_);
  if (pd_ != nullptr) ibv_dealloc_pd(pd_);
  if (id_ != nullptr) rdma_destroy_id(id_);
  if (listener_ != nullptr) rdma_destroy_id(listener_);
  if (events_ != nullptr) rdma_destroy_event_channel(events_);
}

std::string Connection::device() const { return ibv_get_device_name(id_->verbs->device); }

bool Connection::event_ready(int milliseconds) {
  pollfd waiting{events_->fd, POLLIN, 0};
  const int ready = ::poll(&waiting, 1, milliseconds);
  if (interrupted()) throw Interrupted{};
  return ready == 1;
}

void Connection::expect(rdma_cm_event_type wanted, int milliseconds) {
  const std::string name = rdma_event_str(wanted);
  if (!event_ready(milliseconds)) throw Failure("no " + name + " within " + std::to_string(milliseconds) + " ms");
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(events_, &event) != 0) fail_errno("rdma_get_cm_event");
  const rdma_cm_event_type got = event->event;
  const int status = event->status;
  if (got == RDMA_CM_EVENT_CONNECT_REQUEST) {
    listener_ = id_;
    id_ = event->id;
    responder_resources_ = event->param.conn.responder_resources;
    initiator_depth_ = event->param.conn.initiator_depth;
  }
  rdma_ack_cm_event(event);
  if (got == RDMA_CM_EVENT_DISCONNECTED && wanted != got) throw Disconnected{};
  if (got != wanted) {
    throw Failure(reason(got, status, options_));
  }
}

void Connection::bind_and_listen() {
  const AddressList address = address_of(options_);
  if (rdma_bind_addr(id_, address->ai_addr) != 0) fail_errno("bind to " + options_.address);
  if (rdma_listen(id_, 1) != 0) fail_errno("rdma_listen");
  expect(RDMA_CM_EVENT_CONNECT_REQUEST, -1);
}

void Connection::resolve() {
  const AddressList address = address_of(options_);
  const int failed = rdma_resolve_addr(id_, nullptr, address->ai_addr, kResolveTries);
  if (failed != 0 && errno == ENETUNREACH) {
    throw Failure("no route to " + options_.address + ": see `urocectl show routes`");
  }
  if (failed != 0) fail_errno("rdma_resolve_addr");
  expect(RDMA_CM_EVENT_ADDR_RESOLVED, kEventTimeoutMs);
  if (rdma_resolve_route(id_, kResolveTries) != 0) fail_errno("rdma_resolve_route");
  expect(RDMA_CM_EVENT_ROUTE_RESOLVED, kEventTimeoutMs);
}

void Connection::make_queues() {
  pd_ = ibv_alloc_pd(id_->verbs);
  if (pd_ == nullptr) fail_errno("ibv_alloc_pd");
  channel_ = ibv_create_comp_channel(id_->verbs);
  if (channel_ == nullptr) fail_errno("ibv_create_comp_channel");
  const int depth = static_cast<int>(options_.tx_depth) + kReceives + 8;
  cq_ = ibv_create_cq(id_->verbs, depth, nullptr, channel_, 0);
  if (cq_ == nullptr) fail_errno("ibv_create_cq of " + std::to_string(depth));
  if (ibv_req_notify_cq(cq_, 0) != 0) fail_errno("ibv_req_notify_cq");
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq_;
  init.qp_type = IBV_QPT_RC;
  init.cap.max_send_wr = options_.tx_depth + 4;
  init.cap.max_recv_wr = kReceives;
  init.cap.max_send_sge = init.cap.max_recv_sge = 1;
  if (rdma_create_qp(id_, pd_, &init) != 0) fail_errno("rdma_create_qp");
}

void Connection::prepare() {
  if (options_.role == Role::kServer) {
    bind_and_listen();
  } else {
    resolve();
  }
  make_queues();
}

void Connection::establish() {
  rdma_conn_param param{};
  param.retry_count = 7;
  param.rnr_retry_count = 7;
  if (options_.role == Role::kServer) {
    // Swapped: the initiator depth of one side is the responder resources of the other.
    param.responder_resources = std::min(responder_resources_, kReads);
    param.initiator_depth = std::min(initiator_depth_, kReads);
    if (rdma_accept(id_, &param) != 0) fail_errno("rdma_accept");
  } else {
    param.responder_resources = param.initiator_depth = kReads;
    if (rdma_connect(id_, &param) != 0) fail_errno("rdma_connect");
  }
  expect(RDMA_CM_EVENT_ESTABLISHED, kEventTimeoutMs);
  connected_ = true;
}

void Connection::disconnect() {
  if (!connected_) return;
  connected_ = false;
  rdma_disconnect(id_);
  try {
    expect(RDMA_CM_EVENT_DISCONNECTED, kEventTimeoutMs);
  } catch (const Interrupted&) {
  } catch (const Failure&) {
  }
}

void Connection::wait_for_end() {
  if (connected_) expect(RDMA_CM_EVENT_DISCONNECTED, -1);
  connected_ = false;
  rdma_disconnect(id_);
}

void Connection::check_alive() {
  if (!event_ready(0)) return;
  connected_ = false;
  expect(RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
}

void Connection::send(ibv_send_wr& first) {
  ibv_send_wr* bad = nullptr;
  if (const int problem = ibv_post_send(id_->qp, &first, &bad); problem != 0) {
    errno = problem;
    fail_errno("ibv_post_send");
  }
}

void Connection::receive(std::uint64_t wr_id, ibv_sge part) {
  ibv_recv_wr wr{}, *bad = nullptr;
  wr.wr_id = wr_id;
  wr.sg_list = &part;
  wr.num_sge = 1;
  if (const int problem = ibv_post_recv(id_->qp, &wr, &bad); problem != 0) {
    errno = problem;
    fail_errno("ibv_post_recv");
  }
}

void Connection::check(const ibv_wc& wc) const {
  if (wc.status == IBV_WC_SUCCESS) return;
  throw Failure("work request " + std::to_string(wc.wr_id) + ": " + ibv_wc_status_str(wc.status));
}

std::size_t Connection::take(ibv_wc* out, std::size_t limit) {
  const int n = ibv_poll_cq(cq_, static_cast<int>(limit), out);
  if (n < 0) throw Failure("ibv_poll_cq failed");
  for (int i = 0; i < n; ++i) {
    // The flushed receives may be polled before the event that explains them.
    if (out[i].status == IBV_WC_WR_FLUSH_ERR && event_ready(1000)) check_alive();
    check(out[i]);
  }
  return static_cast<std::size_t>(n);
}

ibv_wc Connection::wait() {
  ibv_wc wc{};
  for (std::uint32_t spins = 0; take(&wc, 1) == 0; ++spins) {
    if (options_.poll) {
      if (spins % 4096 == 4095) check_alive();
      continue;
    }
    pollfd waiting[] = {{channel_->fd, POLLIN, 0}, {events_->fd, POLLIN, 0}};
    ::poll(waiting, 2, -1);
    if (interrupted()) throw Interrupted{};
    if (waiting[0].revents != 0) {
      ibv_cq* cq = nullptr;
      void* context = nullptr;
      if (ibv_get_cq_event(channel_, &cq, &context) != 0) fail_errno("ibv_get_cq_event");
      ibv_ack_cq_events(cq, 1);
      if (ibv_req_notify_cq(cq_, 0) != 0) fail_errno("ibv_req_notify_cq");
    } else if (waiting[1].revents != 0 && take(&wc, 1) == 0) {
      check_alive();
    } else if (waiting[1].revents != 0) {
      return wc;
    }
  }
  return wc;
}

}  // namespace uroce::ping
