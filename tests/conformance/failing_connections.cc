// Calls of librdmacm. Both ends of a connection are ids of this program, on one device.
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

#include <cstring>

#include "failing_calls.h"

namespace conformance {
namespace {

constexpr int kTimeout = 2000;

inline int destroy_id(rdma_cm_id* id) { return rdma_destroy_id(id); }
inline int destroy_channel(rdma_event_channel* channel) { return rdma_destroy_event_channel(channel), 0; }
using Id = Owned<rdma_cm_id, destroy_id>;
using EventChannel = Owned<rdma_event_channel, destroy_channel>;

EventChannel make_channel() { return EventChannel(CHECK_MADE(rdma_create_event_channel())); }
Id make_id(const EventChannel& channel, rdma_port_space space = RDMA_PS_TCP) {
  rdma_cm_id* id = nullptr;
  CHECK_OK(rdma_create_id(channel.get(), &id, nullptr, space));
  return Id(id);
}

/// The next event, which must be this one. The id that it came to.
rdma_cm_id* expect(const EventChannel& channel, rdma_cm_event_type wanted) {
  rdma_cm_event* event = nullptr;
  CHECK_OK(rdma_get_cm_event(channel.get(), &event));
  const rdma_cm_event_type got = event->event;
  const int status = event->status;
  rdma_cm_id* const id = event->id;
  CHECK_OK(rdma_ack_cm_event(event));
  if (got != wanted) {
    throw Failed{std::string("expected ") + rdma_event_str(wanted) + ", got " + rdma_event_str(got) + ", status " +
                 std::to_string(status)};
  }
  return id;
}

sockaddr_in address_of(const Bench& bench, std::uint16_t port = 0) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = port;
  std::memcpy(&address.sin_addr, bench.right.gid.raw + 12, 4);
  return address;
}
sockaddr* as_sockaddr(sockaddr_in& address) { return reinterpret_cast<sockaddr*>(&address); }

int bind(const Id& id, sockaddr_in address) { return errno_of(rdma_bind_addr(id.get(), as_sockaddr(address))); }
int resolve(const Id& id, sockaddr_in address) {
  return errno_of(rdma_resolve_addr(id.get(), nullptr, as_sockaddr(address), kTimeout));
}

int cm_create_id(Bench& bench) {
  const EventChannel channel = make_channel();
  return bind(make_id(channel), address_of(bench));
}
int cm_resolve_address(Bench& bench) {
  const EventChannel channel = make_channel();
  return resolve(make_id(channel), address_of(bench));
}
int cm_resolve_route(Bench& bench) {
  const EventChannel channel = make_channel();
  const Id id = make_id(channel);
  CHECK_OK(resolve(id, address_of(bench)));
  expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
  return errno_of(rdma_resolve_route(id.get(), kTimeout));
}
int cm_listen(Bench& bench) {
  const EventChannel channel = make_channel();
  const Id id = make_id(channel);
  CHECK_OK(bind(id, address_of(bench)));
  return errno_of(rdma_listen(id.get(), 1));
}
int cm_migrate(Bench& bench) {
  const EventChannel from = make_channel(), to = make_channel();
  const Id id = make_id(from);
  CHECK_OK(bind(id, address_of(bench)));
  return errno_of(rdma_migrate_id(id.get(), to.get()));
}
int cm_join(Bench& bench) {
  const EventChannel channel = make_channel();
  const Id id = make_id(channel, RDMA_PS_UDP);
  CHECK_OK(bind(id, address_of(bench)));
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_UD;
  init.cap = {1, 1, 1, 1, 0};
  CHECK_OK(rdma_create_qp(id.get(), nullptr, &init));
  sockaddr_in group = address_of(bench);
  group.sin_addr.s_addr = htonl(0xef010204);
  const int error = errno_of(rdma_join_multicast(id.get(), as_sockaddr(group), nullptr));
  if (error == 0) {
    expect(channel, RDMA_CM_EVENT_MULTICAST_JOIN);
    CHECK_OK(rdma_leave_multicast(id.get(), as_sockaddr(group)));
  }
  rdma_destroy_qp(id.get());
  return error;
}

/// A connection. The program makes the client's QP itself, or librdmacm does, for which `own_qp` is nullptr.
struct Connecting {
  explicit Connecting(Bench& bench, const ibv_qp* own_qp = nullptr) : qp(own_qp) {
    CHECK_OK(bind(listener, address_of(bench)));
    CHECK_OK(rdma_listen(listener.get(), 1));
    CHECK_OK(resolve(client, address_of(bench, rdma_get_src_port(listener.get()))));
    expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK_OK(rdma_resolve_route(client.get(), kTimeout));
    expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    if (qp == nullptr) make_qp(client.get());
  }
  ~Connecting() {
    for (const Id* id : {&client, &server}) {
      if (id->get() != nullptr && id->get()->qp != nullptr) rdma_destroy_qp(id->get());
    }
  }
  Connecting(const Connecting&) = delete;
  Connecting& operator=(const Connecting&) = delete;

  static void make_qp(rdma_cm_id* id) {
    ibv_qp_init_attr init{};
    init.qp_type = IBV_QPT_RC;
    init.cap = {1, 1, 1, 1, 0};
    CHECK_OK(rdma_create_qp(id, nullptr, &init));
  }
  int connect() {
    rdma_conn_param param{};
    param.retry_count = 7;
    if (qp != nullptr) param.qp_num = qp->qp_num;
    return errno_of(rdma_connect(client.get(), &param));
  }
  void be_asked() {
    CHECK_OK(connect());
    server = Id(expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST));
    make_qp(server.get());
  }
  int accept() { return errno_of(rdma_accept(server.get(), nullptr)); }
  void be_connected() {
    be_asked();
    CHECK_OK(accept());
    expect(channel, RDMA_CM_EVENT_ESTABLISHED);
    expect(channel, RDMA_CM_EVENT_ESTABLISHED);
  }

  const ibv_qp* qp;
  EventChannel channel = make_channel();
  Id listener = make_id(channel), client = make_id(channel), server;
};

int cm_connect(Bench& bench) { return Connecting(bench).connect(); }
int cm_accept(Bench& bench) {
  Connecting connecting(bench);
  connecting.be_asked();
  return connecting.accept();
}
int cm_reject(Bench& bench) {
  Connecting connecting(bench);
  connecting.be_asked();
  return errno_of(rdma_reject(connecting.server.get(), nullptr, 0));
}
int cm_establish(Bench& bench) {
  const Side side(bench.right, IBV_QPT_RC, 64, {});
  Connecting connecting(bench, side.qp.get());
  connecting.be_asked();
  CHECK_OK(connecting.accept());
  expect(connecting.channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
  return errno_of(rdma_establish(connecting.client.get()));
}
int cm_disconnect(Bench& bench) {
  Connecting connecting(bench);
  connecting.be_connected();
  return errno_of(rdma_disconnect(connecting.client.get()));
}

/// A channel opens at the device with the first id of its own.
int cm_open_channel(Bench& bench) { return cm_create_id(bench); }

}  // namespace

std::map<std::string, FailingCall> failing_connections() {
  return {{"cm_open_channel", cm_open_channel},
          {"cm_create_id", cm_create_id},
          {"cm_resolve_address", cm_resolve_address},
          {"cm_resolve_route", cm_resolve_route},
          {"cm_listen", cm_listen},
          {"cm_migrate", cm_migrate},
          {"cm_join", cm_join},
          {"cm_connect", cm_connect},
          {"cm_accept", cm_accept},
          {"cm_reject", cm_reject},
          {"cm_establish", cm_establish},
          {"cm_disconnect", cm_disconnect}};
}

}  // namespace conformance
