// Checks the calls and events of librdmacm:
//   cm_events server ADDRESS                 serves the two connections that a client requests
//   cm_events client ADDRESS SILENT GROUP    SILENT: an unused address in the same network
//   cm_events calls ADDRESS                  options, bindings, migration: needs no peer
//   cm_events answers ADDRESS                connects, accepts and rejects with wrong arguments: needs no peer
//   cm_events destroy ADDRESS GROUP          destroys ids whose events wait: needs no peer
//   cm_events states ADDRESS SILENT          resolves, binds and listens in wrong states: needs no peer
//   cm_events later ADDRESS                  calls of rdma-core 60 and later: needs no peer
//   cm_events descriptors ADDRESS            resolves without free descriptors
//   cm_events removal ADDRESS                prints "ready", then waits for DEVICE_REMOVAL of its ids
// Exit status 0: all events arrived in order with the right contents.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "common.h"

namespace cm_events {
namespace {

void serve(char** words) {
  rdma_event_channel* const channel = make_channel();
  Address own(words[0], kPort);
  rdma_cm_id* const listener = make_id(channel);
  check(rdma_bind_addr(listener, own.get()), "rdma_bind_addr");
  check(rdma_listen(listener, 4), "rdma_listen");

  const Told first = take(channel, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
  demand(starts_with(first.data, kHello), "the request brings its private data");
  make_qp(first.id, IBV_QPT_RC);
  rdma_conn_param param = with_data(kHello, sizeof(kHello));
  check(rdma_accept(first.id, &param), "rdma_accept");
  take(channel, RDMA_CM_EVENT_ESTABLISHED, 0);
  take(channel, RDMA_CM_EVENT_DISCONNECTED, 0);
  check(rdma_disconnect(first.id), "rdma_disconnect");
  // The client may connect again while the server's id is in TIMEWAIT.
  Told last = take(channel), second = take(channel);
  if (last.type == RDMA_CM_EVENT_CONNECT_REQUEST) std::swap(last, second);
  demand(last.type == RDMA_CM_EVENT_TIMEWAIT_EXIT && last.id == first.id, "TIMEWAIT ends");
  demand(second.type == RDMA_CM_EVENT_CONNECT_REQUEST, "then there is another request");
  rdma_destroy_qp(first.id);
  check(rdma_destroy_id(first.id), "rdma_destroy_id");
  check(rdma_reject(second.id, kNo, sizeof(kNo)), "rdma_reject");
  check(rdma_destroy_id(second.id), "rdma_destroy_id");
  check(rdma_destroy_id(listener), "rdma_destroy_id");
  rdma_destroy_event_channel(channel);
}

/// A connection from request to TIMEWAIT_EXIT, and one that is rejected.
void connect(rdma_event_channel* channel, sockaddr* to) {
  rdma_cm_id* id = make_id(channel);
  std::uint8_t timeout = 11;
  check(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof(timeout)), "ACK_TIMEOUT");
  resolve(id, to);
  make_qp(id, IBV_QPT_RC);
  rdma_conn_param param = with_data(kHello, sizeof(kHello));
  check(rdma_connect(id, &param), "rdma_connect");
  demand(starts_with(take(channel, RDMA_CM_EVENT_ESTABLISHED, 0).data, kHello),
         "the reply brings its private data");
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  check(ibv_query_qp(id->qp, &attributes, IBV_QP_TIMEOUT, &initial), "ibv_query_qp");
  demand(attributes.timeout == timeout, "the QP has the acknowledge timeout that was set");
  check(rdma_disconnect(id), "rdma_disconnect");
  take(channel, RDMA_CM_EVENT_DISCONNECTED, 0);
  take(channel, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
  rdma_destroy_qp(id);
  check(rdma_destroy_id(id), "rdma_destroy_id");

  id = make_id(channel);
  resolve(id, to);
  make_qp(id, IBV_QPT_RC);
  check(rdma_connect(id, &param), "rdma_connect");
  demand(starts_with(take(channel, RDMA_CM_EVENT_REJECTED, kConsumerDefined).data, kNo), "so does the rejection");
  rdma_destroy_qp(id);
  check(rdma_destroy_id(id), "rdma_destroy_id");
}

/// Errors: an unused address, a port without a listener, an unknown datagram service.
void ask_nobody(rdma_event_channel* channel, const char* host, const char* silent) {
  Address nobody(silent, kPort), closed(host, kNobodysPort);
  rdma_cm_id* id = make_id(channel);
  check(rdma_resolve_addr(id, nullptr, nobody.get(), 500), "rdma_resolve_addr");
  take(channel, RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT);
  check(rdma_destroy_id(id), "rdma_destroy_id");

  id = make_id(channel, RDMA_PS_UDP);
  resolve(id, closed.get());
  make_qp(id, IBV_QPT_UD);
  rdma_conn_param param{};
  check(rdma_connect(id, &param), "rdma_connect");
  take(channel, RDMA_CM_EVENT_UNREACHABLE, kNoSuchService);
  rdma_destroy_qp(id);
  check(rdma_destroy_id(id), "rdma_destroy_id");
}

void join(rdma_event_channel* channel, const char* group) {
  Address to(group, "0");
  rdma_cm_id* const id = make_id(channel, RDMA_PS_UDP);
  check(rdma_resolve_addr(id, nullptr, to.get(), 2000), "rdma_resolve_addr");
  take(channel, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
  make_qp(id, IBV_QPT_UD);
  int context = 0;
  check(rdma_join_multicast(id, to.get(), &context), "rdma_join_multicast");
  const Told told = take(channel, RDMA_CM_EVENT_MULTICAST_JOIN, 0);
  demand(told.ud.qp_num == 0xffffff, "a group's QP number is 0xffffff");
  demand(told.ud.ah_attr.grh.dgid.raw[0] == 0xff || told.ud.ah_attr.grh.dgid.raw[12] >= 224,
         "the GID is a group's");
  check(rdma_leave_multicast(id, to.get()), "rdma_leave_multicast");
  rdma_destroy_qp(id);
  check(rdma_destroy_id(id), "rdma_destroy_id");
}

void run_client(char** words) {
  rdma_event_channel* const channel = make_channel();
  Address to(words[0], kPort);
  connect(channel, to.get());
  ask_nobody(channel, words[0], words[1]);
  join(channel, words[2]);
  rdma_destroy_event_channel(channel);
}

/// The channel's descriptor: EAGAIN without events, readable for epoll(7) with one.
void poll_channel(const char* host) {
  rdma_event_channel* const channel = make_channel();
  Address to(host, kPort);
  check(fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK), "fcntl");
  const int set = epoll_create1(0);
  epoll_event wanted{};
  wanted.events = EPOLLIN;
  check(epoll_ctl(set, EPOLL_CTL_ADD, channel->fd, &wanted), "epoll_ctl");
  rdma_cm_id* const id = make_id(channel);
  rdma_cm_event* event = nullptr;
  expect_error(rdma_get_cm_event(channel, &event), EAGAIN, "rdma_get_cm_event of an empty channel");
  demand(epoll_wait(set, &wanted, 1, 0) == 0, "an empty channel is not readable");
  check(rdma_resolve_addr(id, nullptr, to.get(), 2000), "rdma_resolve_addr");
  demand(epoll_wait(set, &wanted, 1, 5000) == 1, "a channel with an event is readable");
  take(channel, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
  expect_error(rdma_get_cm_event(channel, &event), EAGAIN, "rdma_get_cm_event after the last one");
  demand(epoll_wait(set, &wanted, 1, 0) == 0, "nor is one whose events have been taken");
  check(rdma_destroy_id(id), "rdma_destroy_id");
  close(set);
  rdma_destroy_event_channel(channel);
}

/// An id without a channel blocks in its calls. With a channel again, its events arrive there.
void migrate(const char* host) {
  rdma_event_channel *const first = make_channel(), *const second = make_channel();
  Address to(host, kPort);
  rdma_cm_id* const id = make_id(first);
  check(rdma_migrate_id(id, nullptr), "rdma_migrate_id to none");
  check(rdma_resolve_addr(id, nullptr, to.get(), 2000), "rdma_resolve_addr, synchronous");
  demand(id->verbs != nullptr && id->event != nullptr && id->event->event == RDMA_CM_EVENT_ADDR_RESOLVED,
         "a synchronous call leaves its event at the id");
  check(rdma_migrate_id(id, second), "rdma_migrate_id to a channel");
  demand(id->channel == second, "the id is at its new channel");
  check(rdma_resolve_route(id, 2000), "rdma_resolve_route");
  take(second, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
  check(rdma_destroy_id(id), "rdma_destroy_id");
  rdma_destroy_event_channel(first);
  rdma_destroy_event_channel(second);
}

/// Events that wait for the id move with it, in their order; those of other ids stay (Linux:
/// drivers/infiniband/core/ucma.c, ucma_migrate_id).
void migrate_with_events(const char* host) {
  rdma_event_channel *const first = make_channel(), *const second = make_channel();
  Address to(host, kPort);
  rdma_cm_id *const stays = make_id(first), *const moves = make_id(first), *const next = make_id(first);
  for (rdma_cm_id* id : {stays, moves, next}) {
    check(rdma_resolve_addr(id, nullptr, to.get(), 2000), "rdma_resolve_addr");
  }
  usleep(200'000);
  check(rdma_resolve_route(moves, 2000), "rdma_resolve_route");
  usleep(200'000);
  check(rdma_migrate_id(moves, second), "rdma_migrate_id");
  demand(!is_empty(second), "the new channel is readable");
  demand(take(second, RDMA_CM_EVENT_ADDR_RESOLVED, 0).id == moves, "the first event has moved");
  demand(take(second, RDMA_CM_EVENT_ROUTE_RESOLVED, 0).id == moves, "the second event has moved");
  demand(is_empty(second), "the new channel has no other events");
  check(rdma_resolve_route(stays, 2000), "rdma_resolve_route");
  demand(take(first, RDMA_CM_EVENT_ADDR_RESOLVED, 0).id == stays, "the first event of another id stays");
  demand(take(first, RDMA_CM_EVENT_ADDR_RESOLVED, 0).id == next, "that of a third one, too");
  demand(take(first, RDMA_CM_EVENT_ROUTE_RESOLVED, 0).id == stays, "later events come after them");
  demand(is_empty(first), "the old channel has no other events");
  for (rdma_cm_id* id : {stays, moves, next}) check(rdma_destroy_id(id), "rdma_destroy_id");
  rdma_destroy_event_channel(first);
  rdma_destroy_event_channel(second);
}

/// A loopback address counts as any address (Linux: drivers/infiniband/core/cma.c, cma_any_addr). libfabric's
/// message endpoints bind to one.
void bind_to_loopback(const char* host) {
  for (const char* loopback : {"127.0.0.1", "::1"}) {
    Address own(loopback, kPort), to(host, kPort);
    if (own.get()->sa_family == AF_INET && to.get()->sa_family == AF_INET6) continue;
    rdma_event_channel* const channel = make_channel();
    rdma_cm_id *const listener = make_id(channel), *const client = make_id(channel);
    check(rdma_bind_addr(listener, own.get()), "rdma_bind_addr to a loopback address");
    demand(listener->verbs == nullptr, "an id that is bound to a loopback address has no device");
    demand(std::memcmp(rdma_get_local_addr(listener), own.get(), own.bytes) == 0, "its address is the one bound");
    check(rdma_listen(listener, 4), "rdma_listen");
    resolve(client, to.get());
    make_qp(client, IBV_QPT_RC);
    rdma_conn_param param = with_data(kHello, sizeof(kHello));
    check(rdma_connect(client, &param), "rdma_connect");
    rdma_cm_id* const made = take(channel, RDMA_CM_EVENT_CONNECT_REQUEST, 0).id;
    check(rdma_reject(made, nullptr, 0), "rdma_reject");
    take(channel, RDMA_CM_EVENT_REJECTED, kConsumerDefined);
    check(rdma_destroy_id(made), "rdma_destroy_id");
    rdma_destroy_qp(client);
    check(rdma_destroy_id(client), "rdma_destroy_id");
    check(rdma_destroy_id(listener), "rdma_destroy_id");

    rdma_cm_id* const bound = make_id(channel);
    Address source(loopback, "0"), same(host, kPort);
    if (source.get()->sa_family == same.get()->sa_family) {
      check(rdma_resolve_addr(bound, source.get(), same.get(), 2000), "rdma_resolve_addr from a loopback address");
      take(channel, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
    }
    check(rdma_destroy_id(bound), "rdma_destroy_id");
    rdma_destroy_event_channel(channel);
  }
}

/// Options show in the attributes that rdma_init_qp_attr(3) returns.
void set_options(const char* host) {
  rdma_event_channel* const channel = make_channel();
  Address to(host, kPort);
  rdma_cm_id* const id = make_id(channel);
  std::uint8_t tos = 96, whole[8] = {};
  check(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos)), "TOS");
  expect_error(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, whole, sizeof(whole)), EINVAL,
               "TOS, 8 bytes");
  expect_error(rdma_set_option(id, RDMA_OPTION_ID, 99, &tos, sizeof(tos)), ENOSYS, "an option that there is not");
  resolve(id, to.get());
  demand(id->route.path_rec != nullptr && id->route.path_rec->traffic_class == tos,
         "the route has the traffic class");
  check(rdma_destroy_id(id), "rdma_destroy_id");
  rdma_destroy_event_channel(channel);
}

/// AFONLY: an id bound to the IPv6 wildcard does not reserve the IPv4 port.
void bind_families() {
  rdma_event_channel* const channel = make_channel();
  Address six("::", kPort), four("0.0.0.0", kPort);
  for (int only : {1, 0}) {
    rdma_cm_id *const first = make_id(channel), *const second = make_id(channel);
    check(rdma_set_option(first, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only, sizeof(only)), "AFONLY");
    check(rdma_bind_addr(first, six.get()), "rdma_bind_addr to IPv6");
    const int result = rdma_bind_addr(second, four.get());
    if (only != 0) {
      check(result, "rdma_bind_addr to IPv4 with AFONLY on IPv6");
    } else {
      expect_error(result, EADDRNOTAVAIL, "rdma_bind_addr to IPv4 without AFONLY");
    }
    check(rdma_destroy_id(second), "rdma_destroy_id");
    check(rdma_destroy_id(first), "rdma_destroy_id");
  }
  rdma_destroy_event_channel(channel);
}

void make_calls(char** words) {
  poll_channel(words[0]);
  migrate(words[0]);
  migrate_with_events(words[0]);
  bind_to_loopback(words[0]);
  set_options(words[0]);
  bind_families();
}

/// A call that needs a descriptor fails with EMFILE where the process has none left.
void run_out_of_descriptors(char** words) {
  rdma_event_channel* const channel = make_channel();
  Address to(words[0], kPort);
  rdma_cm_id* const id = make_id(channel);
  rlimit limit{};
  check(getrlimit(RLIMIT_NOFILE, &limit), "getrlimit");
  const rlim_t before = std::exchange(limit.rlim_cur, 3);
  check(setrlimit(RLIMIT_NOFILE, &limit), "setrlimit");
  expect_error(rdma_resolve_addr(id, nullptr, to.get(), 2000), EMFILE, "rdma_resolve_addr without descriptors");
  limit.rlim_cur = before;
  check(setrlimit(RLIMIT_NOFILE, &limit), "setrlimit");
  demand(is_empty(channel), "a call that failed is followed by no event");
  resolve(id, to.get());
  check(rdma_destroy_id(id), "rdma_destroy_id");
  rdma_destroy_event_channel(channel);
}

/// The daemon ends: each id gets DEVICE_REMOVAL exactly once.
void lose_device(char** words) {
  rdma_event_channel* const channel = make_channel();
  Address own(words[0], kPort);
  rdma_cm_id *const listener = make_id(channel), *const idle = make_id(channel);
  check(rdma_bind_addr(listener, own.get()), "rdma_bind_addr");
  check(rdma_listen(listener, 4), "rdma_listen");
  resolve(idle, own.get());
  std::printf("ready\n");
  std::fflush(stdout);
  rdma_cm_id* const first = take(channel, RDMA_CM_EVENT_DEVICE_REMOVAL, 0).id;
  rdma_cm_id* const second = take(channel, RDMA_CM_EVENT_DEVICE_REMOVAL, 0).id;
  demand((first == listener && second == idle) || (first == idle && second == listener),
         "each id gets DEVICE_REMOVAL once");
  check(rdma_destroy_id(listener), "rdma_destroy_id");
  check(rdma_destroy_id(idle), "rdma_destroy_id");
  rdma_destroy_event_channel(channel);
}

constexpr struct {
  const char* name;
  int words;
  void (*run)(char** words);
} kModes[] = {
    {"server", 1, serve},           {"client", 3, run_client},       {"calls", 1, make_calls},
    {"answers", 1, answer_wrongly}, {"destroy", 2, destroy_objects}, {"states", 2, call_in_wrong_states},
    {"later", 1, call_later},       {"removal", 1, lose_device},     {"descriptors", 1, run_out_of_descriptors}};

}  // namespace
}  // namespace cm_events

int main(int argc, char** argv) {
  for (const auto& mode : cm_events::kModes) {
    if (argc == 2 + mode.words && std::strcmp(argv[1], mode.name) == 0) {
      mode.run(argv + 2);
      return 0;
    }
  }
  std::fprintf(stderr, "usage: see the head of tests/e2e/cm_events/main.cc\n");
  return 2;
}
