// Calls of a connection that fail: they change nothing and can be repeated, or the peer receives a rejection.
#include "common.h"

namespace cm_events {
namespace {

/// A client whose request the server has taken.
struct Requested {
  Requested(const char* host, rdma_port_space space) : type(space == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC) {
    Address to(host, kPort);
    listener = make_id(passive, space);
    check(rdma_bind_addr(listener, to.get()), "rdma_bind_addr");
    check(rdma_listen(listener, 4), "rdma_listen");
    client = make_id(active, space);
    resolve(client, to.get());
    make_qp(client, type);
  }
  ~Requested() {
    for (rdma_cm_id* id : {server, client}) {
      if (id == nullptr) continue;
      rdma_destroy_qp(id);
      check(rdma_destroy_id(id), "rdma_destroy_id");
    }
    check(rdma_destroy_id(listener), "rdma_destroy_id");
    rdma_destroy_event_channel(passive);
    rdma_destroy_event_channel(active);
  }
  void request(std::size_t bytes = 0) {
    rdma_conn_param param = with_data(data, bytes);
    check(rdma_connect(client, &param), "rdma_connect");
    server = take(passive, RDMA_CM_EVENT_CONNECT_REQUEST, 0).id;
    make_qp(server, type);
  }
  void expect_refused(int (*call)(rdma_cm_id*, rdma_conn_param*), rdma_cm_id* id, rdma_conn_param param,
                      const char* what) {
    const ibv_qp_state before = state(id);
    expect_error(call(id, &param), EINVAL, what);
    demand(state(id) == before, "a call that is refused does not move the QP");
    demand(is_empty(active) && is_empty(passive), "a call that is refused causes no event");
  }
  static ibv_qp_state state(rdma_cm_id* id) {
    ibv_qp_attr attributes{};
    ibv_qp_init_attr initial{};
    check(ibv_query_qp(id->qp, &attributes, IBV_QP_STATE, &initial), "ibv_query_qp");
    return attributes.qp_state;
  }

  const ibv_qp_type type;
  rdma_event_channel *const passive = make_channel(), *const active = make_channel();
  rdma_cm_id *listener = nullptr, *client = nullptr, *server = nullptr;
  char data[256] = "hello";
};

void repeat_calls(const char* host) {
  Requested pair(host, RDMA_PS_TCP);
  pair.expect_refused(rdma_connect, pair.client, with_data(pair.data, 57), "rdma_connect with 57 bytes");
  pair.request(56);
  pair.expect_refused(rdma_accept, pair.server, with_data(pair.data, 197), "rdma_accept with 197 bytes");
  rdma_conn_param greedy = with_data(pair.data, 4);
  greedy.responder_resources = 254;
  pair.expect_refused(rdma_accept, pair.server, greedy, "rdma_accept with 254 responder resources");
  demand(Requested::state(pair.server) == IBV_QPS_INIT, "the QP is in INIT");
  rdma_conn_param param = with_data(pair.data, 196);
  check(rdma_accept(pair.server, &param), "rdma_accept with 196 bytes");
  demand(starts_with(take(pair.active, RDMA_CM_EVENT_ESTABLISHED, 0).data, kHello), "the reply has its data");
  take(pair.passive, RDMA_CM_EVENT_ESTABLISHED, 0);
  pair.expect_refused(rdma_accept, pair.server, param, "a second rdma_accept");
  pair.expect_refused(rdma_connect, pair.client, with_data(pair.data, 4), "a second rdma_connect");
}

void repeat_datagram_calls(const char* host) {
  Requested pair(host, RDMA_PS_UDP);
  pair.expect_refused(rdma_connect, pair.client, with_data(pair.data, 181), "rdma_connect with 181 bytes");
  pair.request(180);
  pair.expect_refused(rdma_accept, pair.server, with_data(pair.data, 137), "rdma_accept with 137 bytes");
  rdma_conn_param param = with_data(pair.data, 136);
  check(rdma_accept(pair.server, &param), "rdma_accept with 136 bytes");
  take(pair.active, RDMA_CM_EVENT_ESTABLISHED, 0);
}

void repeat_reject(const char* host) {
  Requested pair(host, RDMA_PS_TCP);
  pair.request();
  expect_error(rdma_reject(pair.server, pair.data, 149), EINVAL, "rdma_reject with 149 bytes");
  demand(is_empty(pair.active), "a rejection that is refused is not sent");
  check(rdma_reject(pair.server, pair.data, 148), "rdma_reject with 148 bytes");
  demand(starts_with(take(pair.active, RDMA_CM_EVENT_REJECTED, kConsumerDefined).data, kHello),
         "the rejection has its data");
  rdma_conn_param param = with_data(pair.data, 4);
  expect_error(rdma_accept(pair.server, &param), EINVAL, "rdma_accept after rdma_reject");
}

void fail_finally(const char* host) {
  Requested pair(host, RDMA_PS_TCP);
  pair.request();
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  check(ibv_modify_qp(pair.server->qp, &attributes, IBV_QP_STATE), "ibv_modify_qp");
  rdma_conn_param param = with_data(pair.data, 4);
  expect_error(rdma_accept(pair.server, &param), EINVAL, "rdma_accept with a QP in ERR");
  take(pair.active, RDMA_CM_EVENT_REJECTED, kConsumerDefined);
  expect_error(rdma_accept(pair.server, &param), EINVAL, "rdma_accept after a failure");
}

/// ib_cm_notify: before the first packet of a client that was accepted, and at no other time.
void notify_in_wrong_states(const char* host) {
  Requested pair(host, RDMA_PS_TCP);
  const auto refused = [](rdma_cm_id* id, const char* what) {
    expect_error(rdma_notify(id, IBV_EVENT_COMM_EST), EINVAL, what);
  };
  refused(pair.listener, "rdma_notify of a listener");
  refused(pair.client, "rdma_notify of an id without connection");
  pair.request();
  refused(pair.client, "rdma_notify of a client that waits");
  refused(pair.server, "rdma_notify of a request");
  rdma_conn_param param = with_data(pair.data, 4);
  check(rdma_accept(pair.server, &param), "rdma_accept");
  demand(fills(pair.active), "the reply arrives");
  refused(pair.client, "rdma_notify of a client that was accepted");
  expect_error(rdma_notify(pair.server, IBV_EVENT_SQ_DRAINED), EINVAL, "rdma_notify of another event");
  check(rdma_notify(pair.server, IBV_EVENT_COMM_EST), "rdma_notify");
  take(pair.passive, RDMA_CM_EVENT_ESTABLISHED, 0);
  take(pair.active, RDMA_CM_EVENT_ESTABLISHED, 0);
  for (rdma_cm_id* id : {pair.server, pair.client}) {
    expect_error(rdma_notify(id, IBV_EVENT_COMM_EST), EISCONN, "rdma_notify of a connection");
  }
  for (int i = 0; i < 2; ++i) check(rdma_disconnect(pair.client), "rdma_disconnect, once or twice");
  refused(pair.client, "rdma_notify after rdma_disconnect");
}

/// rdma_establish(3) is for clients without a QP.
void establish_in_wrong_states(const char* host) {
  Requested pair(host, RDMA_PS_TCP);
  pair.request();
  rdma_conn_param param = with_data(pair.data, 4);
  check(rdma_accept(pair.server, &param), "rdma_accept");
  rdma_destroy_qp(pair.client);
  take(pair.active, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
  rdma_destroy_qp(pair.server);
  expect_error(rdma_establish(pair.server), EINVAL, "rdma_establish of a server");
  demand(is_empty(pair.passive), "a call that is refused causes no event");
  check(rdma_establish(pair.client), "rdma_establish");
  take(pair.passive, RDMA_CM_EVENT_ESTABLISHED, 0);
  expect_error(rdma_establish(pair.client), EINVAL, "rdma_establish again");
}

}  // namespace

void answer_wrongly(char** words) {
  repeat_calls(words[0]);
  repeat_datagram_calls(words[0]);
  repeat_reject(words[0]);
  fail_finally(words[0]);
  notify_in_wrong_states(words[0]);
  establish_in_wrong_states(words[0]);
}

}  // namespace cm_events
