// Ids that are destroyed while events wait for them.
#include <unistd.h>

#include "common.h"

namespace cm_events {
namespace {

/// The waiting events of an id leave the channel with it; those of others stay, in their order (Linux:
/// drivers/infiniband/core/ucma.c, ucma_destroy_private_ctx).
void destroy_with_events(const char* host) {
  rdma_event_channel* const channel = make_channel();
  Address to(host, kPort);
  for (int destroyed = 0; destroyed < 3; ++destroyed) {
    rdma_cm_id* ids[3];
    for (rdma_cm_id*& id : ids) {
      id = make_id(channel);
      check(rdma_resolve_addr(id, nullptr, to.get(), 2000), "rdma_resolve_addr");
      demand(fills(channel), "the event arrives");
    }
    usleep(200'000);
    check(rdma_destroy_id(ids[destroyed]), "rdma_destroy_id");
    for (int i = 0; i < 3; ++i) {
      if (i == destroyed) continue;
      demand(!is_empty(channel), "the channel is readable for another id");
      demand(take(channel, RDMA_CM_EVENT_ADDR_RESOLVED, 0).id == ids[i],
             "the events of others stay in their order");
    }
    demand(is_empty(channel), "the channel is empty");
    for (int i = 0; i < 3; ++i) {
      if (i != destroyed) check(rdma_destroy_id(ids[i]), "rdma_destroy_id");
    }
  }
  rdma_cm_id* const alone = make_id(channel);
  check(rdma_resolve_addr(alone, nullptr, to.get(), 2000), "rdma_resolve_addr");
  demand(fills(channel), "the event arrives");
  check(rdma_destroy_id(alone), "rdma_destroy_id");
  demand(is_empty(channel), "the channel of the only id is empty");
  rdma_destroy_event_channel(channel);
}

/// Linux: drivers/infiniband/core/ucma.c, ucma_cleanup_mc_events.
void leave_with_event(const char* group) {
  rdma_event_channel* const channel = make_channel();
  Address to(group, "0");
  rdma_cm_id* const id = make_id(channel, RDMA_PS_UDP);
  check(rdma_resolve_addr(id, nullptr, to.get(), 2000), "rdma_resolve_addr");
  take(channel, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
  check(rdma_join_multicast(id, to.get(), nullptr), "rdma_join_multicast");
  demand(fills(channel), "the event arrives");
  check(rdma_leave_multicast(id, to.get()), "rdma_leave_multicast");
  demand(is_empty(channel), "the event of a group that was left is gone");
  check(rdma_destroy_id(id), "rdma_destroy_id");
  rdma_destroy_event_channel(channel);
}

/// A listener is destroyed: a request that waits is rejected, one that the program has taken is not (Linux:
/// drivers/infiniband/core/ucma.c, ucma_cleanup_events).
void destroy_listener(const char* host, rdma_port_space space) {
  constexpr int kRejectedDatagrams = 2;  // status of a SIDR response
  rdma_event_channel *const passive = make_channel(), *const active = make_channel();
  Address to(host, kPort);
  rdma_cm_id* const listener = make_id(passive, space);
  check(rdma_bind_addr(listener, to.get()), "rdma_bind_addr");
  check(rdma_listen(listener, 4), "rdma_listen");
  rdma_cm_id* clients[3];
  for (rdma_cm_id*& client : clients) {
    client = make_id(active, space);
    resolve(client, to.get());
    make_qp(client, space == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC);
    rdma_conn_param param = with_data(nullptr, 0);
    check(rdma_connect(client, &param), "rdma_connect");
    demand(fills(passive), "the request arrives");
  }
  rdma_cm_id* const taken = take(passive, RDMA_CM_EVENT_CONNECT_REQUEST, 0).id;
  usleep(200'000);
  check(rdma_destroy_id(listener), "rdma_destroy_id");
  demand(is_empty(passive), "no request waits any longer");
  for (int i = 0; i < 2; ++i) {
    if (space == RDMA_PS_UDP) {
      take(active, RDMA_CM_EVENT_UNREACHABLE, kRejectedDatagrams);
    } else {
      take(active, RDMA_CM_EVENT_REJECTED, kConsumerDefined);
    }
  }
  demand(is_empty(active), "the client whose request was taken still waits");
  make_qp(taken, space == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC);
  rdma_conn_param param = with_data(nullptr, 0);
  check(rdma_accept(taken, &param), "rdma_accept after the listener was destroyed");
  take(active, RDMA_CM_EVENT_ESTABLISHED, 0);
  for (rdma_cm_id* id : {taken, clients[0], clients[1], clients[2]}) {
    rdma_destroy_qp(id);
    check(rdma_destroy_id(id), "rdma_destroy_id");
  }
  rdma_destroy_event_channel(active);
  rdma_destroy_event_channel(passive);
}

/// A request waits whose client has gone, with the event of that: both go where the listener goes.
void leave_with_the_listener(const char* host, bool migrate) {
  constexpr int kTimedOut = 4, kNoListener = 8;  // reasons of a REJ
  rdma_event_channel *const passive = make_channel(), *const active = make_channel(), *const other = make_channel();
  Address to(host, kPort), nobody(host, kNobodysPort);
  rdma_cm_id* const listener = make_id(passive);
  check(rdma_bind_addr(listener, to.get()), "rdma_bind_addr");
  check(rdma_listen(listener, 4), "rdma_listen");
  // The second is rejected once the first one's messages have arrived.
  for (sockaddr* address : {to.get(), nobody.get()}) {
    rdma_cm_id* const client = make_id(active);
    resolve(client, address);
    make_qp(client, IBV_QPT_RC);
    rdma_conn_param param = with_data(nullptr, 0);
    check(rdma_connect(client, &param), "rdma_connect");
    if (address == to.get()) demand(fills(passive), "the request arrives");
    if (address == nobody.get()) take(active, RDMA_CM_EVENT_REJECTED, kNoListener);
    rdma_destroy_qp(client);
    check(rdma_destroy_id(client), "rdma_destroy_id");
  }
  if (migrate) {
    check(rdma_migrate_id(listener, other), "rdma_migrate_id");
    demand(is_empty(passive), "nothing of the listener stays");
    rdma_cm_id* const request = take(other, RDMA_CM_EVENT_CONNECT_REQUEST, 0).id;
    demand(take(other, RDMA_CM_EVENT_REJECTED, kTimedOut).id == request, "the event of the request has moved, too");
    check(rdma_destroy_id(request), "rdma_destroy_id");
  }
  check(rdma_destroy_id(listener), "rdma_destroy_id");
  demand(is_empty(passive) && is_empty(other), "nothing of the listener waits");
  for (rdma_event_channel* channel : {passive, active, other}) rdma_destroy_event_channel(channel);
}

}  // namespace

void destroy_objects(char** words) {
  destroy_with_events(words[0]);
  leave_with_event(words[1]);
  destroy_listener(words[0], RDMA_PS_TCP);
  destroy_listener(words[0], RDMA_PS_UDP);
  for (const bool migrate : {false, true}) leave_with_the_listener(words[0], migrate);
}

}  // namespace cm_events
