// What the checks of librdmacm share: calls that must succeed, and events that must arrive.
#pragma once

#include <netdb.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace cm_events {

inline constexpr const char* kPort = "7220";
inline constexpr const char* kNobodysPort = "7221";
inline constexpr int kConsumerDefined = 28;
inline constexpr int kNoSuchService = 1;  // status of a SIDR response
inline constexpr char kHello[] = "hello", kNo[] = "not you";

[[noreturn]] inline void fail(const std::string& what) {
  std::fprintf(stderr, "cm_events: %s\n", what.c_str());
  std::exit(1);
}
inline void check(int result, const char* what) {
  if (result != 0) fail(std::string(what) + ": " + std::strerror(errno));
}
inline void demand(bool holds, const char* what) {
  if (!holds) fail(std::string("does not hold: ") + what);
}
inline void expect_error(int result, int error, const char* what) {
  if (result != -1 || errno != error) {
    fail(std::string(what) + ": expected " + std::strerror(error) + ", got " + std::to_string(result) + ", " +
         std::strerror(errno));
  }
}

struct Address {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  Address(const char* host, const char* port) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_flags = AI_NUMERICHOST;
    if (getaddrinfo(host, port, &hints, &found) != 0) fail(std::string("no address: ") + host);
    std::memcpy(&storage, found->ai_addr, found->ai_addrlen);
    bytes = found->ai_addrlen;
    freeaddrinfo(found);
  }
};

/// A copy of an event that was acknowledged.
struct Told {
  rdma_cm_event_type type;
  rdma_cm_id* id;
  int status;
  rdma_ud_param ud;
  std::string data;
};

inline Told take(rdma_event_channel* channel) {
  rdma_cm_event* event = nullptr;
  check(rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
  Told told{event->event, event->id, event->status, {}, {}};
  if (event->id->ps == RDMA_PS_UDP) {
    told.ud = event->param.ud;
  } else if (event->param.conn.private_data != nullptr) {
    told.data.assign(static_cast<const char*>(event->param.conn.private_data), event->param.conn.private_data_len);
  }
  check(rdma_ack_cm_event(event), "rdma_ack_cm_event");
  return told;
}

inline Told take(rdma_event_channel* channel, rdma_cm_event_type wanted, int status) {
  Told told = take(channel);
  if (told.type != wanted || told.status != status) {
    fail(std::string("expected ") + rdma_event_str(wanted) + ", status " + std::to_string(status) + ", got " +
         rdma_event_str(told.type) + ", status " + std::to_string(told.status));
  }
  return told;
}

inline rdma_event_channel* make_channel() {
  rdma_event_channel* const channel = rdma_create_event_channel();
  if (channel == nullptr) fail("rdma_create_event_channel");
  return channel;
}

inline rdma_cm_id* make_id(rdma_event_channel* channel, rdma_port_space space = RDMA_PS_TCP,
                           void* context = nullptr) {
  rdma_cm_id* id = nullptr;
  check(rdma_create_id(channel, &id, context, space), "rdma_create_id");
  return id;
}

inline void resolve(rdma_cm_id* id, sockaddr* to) {
  check(rdma_resolve_addr(id, nullptr, to, 2000), "rdma_resolve_addr");
  take(id->channel, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
  check(rdma_resolve_route(id, 2000), "rdma_resolve_route");
  take(id->channel, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
}

inline void make_qp(rdma_cm_id* id, ibv_qp_type type) {
  ibv_qp_init_attr attributes{};
  attributes.cap = {1, 1, 1, 1, 0};
  attributes.qp_type = type;
  check(rdma_create_qp(id, nullptr, &attributes), "rdma_create_qp");
}

inline rdma_conn_param with_data(const char* data, std::size_t bytes) {
  rdma_conn_param param{};
  param.private_data = data;
  param.private_data_len = static_cast<std::uint8_t>(bytes);
  param.retry_count = param.rnr_retry_count = 7;
  return param;
}

inline bool starts_with(const std::string& data, const char* text) {
  return data.compare(0, std::strlen(text), text) == 0;
}

/// Whether no event waits.
inline bool is_empty(rdma_event_channel* channel) {
  pollfd ready{channel->fd, POLLIN, 0};
  return poll(&ready, 1, 0) == 0;
}

/// Whether an event arrives.
inline bool fills(rdma_event_channel* channel) {
  pollfd ready{channel->fd, POLLIN, 0};
  return poll(&ready, 1, 5000) == 1;
}

// answers.cc
void answer_wrongly(char** words);
// destroy.cc
void destroy_objects(char** words);
// later.cc
void call_later(char** words);
// states.cc
void call_in_wrong_states(char** words);

}  // namespace cm_events
