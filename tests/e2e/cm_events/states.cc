// The states and addresses in which calls are refused (Linux: drivers/infiniband/core/cma.c).
#include "common.h"

namespace cm_events {
namespace {

constexpr int kTimeout = 2000;  // ms
constexpr int kNoListener = 8;  // reason of a REJ: invalid service ID

/// Calls of an id that are refused once its address is resolved.
void expect_no_address_calls(rdma_cm_id* id, sockaddr* to) {
  expect_error(rdma_resolve_addr(id, nullptr, to, kTimeout), EINVAL, "rdma_resolve_addr again");
  expect_error(rdma_bind_addr(id, to), EINVAL, "rdma_bind_addr of a resolved id");
  expect_error(rdma_listen(id, 1), EINVAL, "rdma_listen of a resolved id");
  demand(is_empty(id->channel), "a call that is refused causes no event");
}

void resolve_once(const char* host) {
  rdma_event_channel* const channel = make_channel();
  Address to(host, kNobodysPort);
  rdma_cm_id* const id = make_id(channel);
  rdma_conn_param param = with_data(nullptr, 0);
  expect_error(rdma_resolve_route(id, kTimeout), EINVAL, "rdma_resolve_route of a new id");
  expect_error(rdma_connect(id, &param), EINVAL, "rdma_connect of a new id");
  check(rdma_resolve_addr(id, nullptr, to.get(), kTimeout), "rdma_resolve_addr");
  take(channel, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
  expect_no_address_calls(id, to.get());
  make_qp(id, IBV_QPT_RC);
  expect_error(rdma_connect(id, &param), EINVAL, "rdma_connect without a route");
  check(rdma_resolve_route(id, kTimeout), "rdma_resolve_route");
  take(channel, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
  expect_no_address_calls(id, to.get());
  expect_error(rdma_resolve_route(id, kTimeout), EINVAL, "rdma_resolve_route again");
  check(rdma_connect(id, &param), "rdma_connect");
  take(channel, RDMA_CM_EVENT_REJECTED, kNoListener);
  expect_no_address_calls(id, to.get());
  expect_error(rdma_resolve_route(id, kTimeout), EINVAL, "rdma_resolve_route after a connection");
  rdma_destroy_qp(id);
  check(rdma_destroy_id(id), "rdma_destroy_id");
  rdma_destroy_event_channel(channel);
}

void resolve_after_an_error(const char* host, const char* silent) {
  rdma_event_channel* const channel = make_channel();
  Address to(host, kPort), nobody(silent, kPort);
  rdma_cm_id *const busy = make_id(channel), *const id = make_id(channel);
  check(rdma_resolve_addr(busy, nullptr, nobody.get(), 60'000), "rdma_resolve_addr");
  expect_error(rdma_resolve_addr(busy, nullptr, to.get(), kTimeout), EINVAL, "rdma_resolve_addr during another");
  check(rdma_destroy_id(busy), "rdma_destroy_id during rdma_resolve_addr");
  check(rdma_resolve_addr(id, nullptr, nobody.get(), 1'000), "rdma_resolve_addr");
  take(channel, RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT);
  expect_error(rdma_resolve_route(id, kTimeout), EINVAL, "rdma_resolve_route without an address");
  resolve(id, to.get());
  check(rdma_destroy_id(id), "rdma_destroy_id");
  rdma_destroy_event_channel(channel);
}

/// The addresses of an id are of one family.
void mix_families(const char* host) {
  rdma_event_channel* const channel = make_channel();
  Address four(host, kPort), six("::1", kPort), any6("::", "0"), any4("0.0.0.0", "0");
  rdma_cm_id *const bound = make_id(channel), *const fresh = make_id(channel);
  sockaddr other{};
  other.sa_family = AF_UNIX;
  expect_error(rdma_bind_addr(bound, &other), EINVAL, "rdma_bind_addr of another family");
  expect_error(rdma_resolve_addr(bound, nullptr, &other, kTimeout), EINVAL, "rdma_resolve_addr of another family");
  expect_error(rdma_resolve_addr(bound, &other, four.get(), kTimeout), EINVAL, "a source of another family");
  check(rdma_bind_addr(bound, any6.get()), "rdma_bind_addr");
  expect_error(rdma_bind_addr(bound, any6.get()), EINVAL, "rdma_bind_addr again");
  expect_error(rdma_resolve_addr(bound, nullptr, four.get(), kTimeout), EINVAL, "IPv4 from an id bound to IPv6");
  expect_error(rdma_resolve_addr(fresh, any6.get(), four.get(), kTimeout), EINVAL, "IPv4 with an IPv6 source");
  expect_error(rdma_resolve_addr(fresh, any4.get(), six.get(), kTimeout), EINVAL, "IPv6 with an IPv4 source");
  demand(is_empty(channel), "a call that is refused causes no event");
  check(rdma_resolve_addr(fresh, any4.get(), four.get(), kTimeout), "IPv4 with an IPv4 source");
  take(channel, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
  for (rdma_cm_id* id : {bound, fresh}) check(rdma_destroy_id(id), "rdma_destroy_id");
  rdma_destroy_event_channel(channel);
}

void listen_once(const char* host) {
  rdma_event_channel* const channel = make_channel();
  Address to(host, kPort);
  rdma_cm_id* const listener = make_id(channel);
  check(rdma_listen(listener, 1), "rdma_listen of an id that was never bound");
  demand(rdma_get_local_addr(listener)->sa_family == AF_INET, "it listens on IPv4");
  demand(rdma_get_src_port(listener) != 0, "it has a port");
  rdma_conn_param param = with_data(nullptr, 0);
  expect_error(rdma_listen(listener, 1), EINVAL, "rdma_listen again");
  expect_error(rdma_bind_addr(listener, to.get()), EINVAL, "rdma_bind_addr of a listener");
  expect_error(rdma_resolve_addr(listener, nullptr, to.get(), kTimeout), EINVAL, "rdma_resolve_addr of a listener");
  expect_error(rdma_resolve_route(listener, kTimeout), EINVAL, "rdma_resolve_route of a listener");
  expect_error(rdma_connect(listener, &param), EINVAL, "rdma_connect of a listener");
  check(rdma_destroy_id(listener), "rdma_destroy_id");
  rdma_destroy_event_channel(channel);
}

/// cma_check_port: an id at any address is not available next to another one.
void share_ports(const char* host) {
  rdma_event_channel* const channel = make_channel();
  Address one(host, kPort), any("0.0.0.0", kPort), any6("::", kPort);
  for (sockaddr* first : {one.get(), any.get(), any6.get()}) {
    rdma_cm_id* const holder = make_id(channel);
    check(rdma_bind_addr(holder, first), "rdma_bind_addr");
    for (sockaddr* second : {one.get(), any.get(), any6.get()}) {
      rdma_cm_id* const id = make_id(channel);
      const bool same = first == one.get() && second == one.get();
      expect_error(rdma_bind_addr(id, second), same ? EADDRINUSE : EADDRNOTAVAIL,
                   "rdma_bind_addr to a port in use");
      check(rdma_destroy_id(id), "rdma_destroy_id");
    }
    rdma_cm_id* const datagrams = make_id(channel, RDMA_PS_UDP);
    check(rdma_bind_addr(datagrams, one.get()), "rdma_bind_addr in another port space");
    check(rdma_destroy_id(datagrams), "rdma_destroy_id");
    check(rdma_destroy_id(holder), "rdma_destroy_id");
  }
  rdma_destroy_event_channel(channel);
}

/// rdma_set_reuseaddr, rdma_set_afonly, rdma_set_ack_timeout, ucma_set_ib_path.
void set_options_in_wrong_states(const char* host) {
  rdma_event_channel* const channel = make_channel();
  Address to(host, kPort);
  rdma_cm_id *const id = make_id(channel), *const datagrams = make_id(channel, RDMA_PS_UDP);
  int on = 1, off = 0;
  std::uint8_t timeout = 14, path[8] = {};
  const auto set = [](rdma_cm_id* of, int name, int value) {
    return rdma_set_option(of, RDMA_OPTION_ID, name, &value, sizeof(value));
  };
  expect_error(rdma_set_option(datagrams, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof(timeout)),
               EINVAL, "ACK_TIMEOUT of datagrams");
  check(set(id, RDMA_OPTION_ID_REUSEADDR, on), "REUSEADDR of a new id");
  check(rdma_bind_addr(id, to.get()), "rdma_bind_addr");
  expect_error(set(id, RDMA_OPTION_ID_REUSEADDR, off), EINVAL, "REUSEADDR 0 of an id that is bound");
  check(set(id, RDMA_OPTION_ID_AFONLY, off), "AFONLY of an id that is bound");
  check(rdma_listen(id, 1), "rdma_listen");
  for (int name : {RDMA_OPTION_ID_REUSEADDR, RDMA_OPTION_ID_AFONLY}) {
    expect_error(set(id, name, on), EINVAL, "REUSEADDR or AFONLY of a listener");
  }
  check(rdma_resolve_addr(datagrams, nullptr, to.get(), kTimeout), "rdma_resolve_addr");
  take(channel, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
  expect_error(set(datagrams, RDMA_OPTION_ID_AFONLY, on), EINVAL, "AFONLY of a resolved id");
  expect_error(rdma_set_option(datagrams, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, path, sizeof(path)), EINVAL,
               "IB_PATH, 8 bytes");
  demand(is_empty(channel), "a call that is refused causes no event");
  for (rdma_cm_id* each : {id, datagrams}) check(rdma_destroy_id(each), "rdma_destroy_id");
  rdma_destroy_event_channel(channel);
}

}  // namespace

void call_in_wrong_states(char** words) {
  resolve_once(words[0]);
  resolve_after_an_error(words[0], words[1]);
  mix_families(words[0]);
  listen_once(words[0]);
  share_ports(words[0]);
  set_options_in_wrong_states(words[0]);
}

}  // namespace cm_events
