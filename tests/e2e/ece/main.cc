// Enhanced connection establishment between two ends with QPs of their own: `ece server ADDRESS`, then `ece client
// ADDRESS`. Three connections: with options, without, and rejected for its options. Then a datagram service, whose
// request has no field for them. Exit status 0: each end received the other's options.
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr std::uint16_t kPort = 7219;
constexpr ibv_ece kRequested{0xabcdef, 0xf0000007, 0}, kGranted{0xabcdef, 0x7, 0}, kNone{0, 0, 0};
constexpr int kVendorOptionNotSupported = 35;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "ece: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}
void check(int result, const char* what) {
  if (result != 0) fail(what);
}

struct Told {
  rdma_cm_id* id;
  int status;
};

Told expect(rdma_event_channel* channel, rdma_cm_event_type wanted) {
  rdma_cm_event* event = nullptr;
  check(rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
  const Told told{event->id, event->status};
  const rdma_cm_event_type got = event->event;
  check(rdma_ack_cm_event(event), "rdma_ack_cm_event");
  if (got == wanted) return told;
  std::fprintf(stderr, "ece: expected %s, got %s, status %d\n", rdma_event_str(wanted), rdma_event_str(got),
               told.status);
  std::exit(1);
}

void expect_remote(rdma_cm_id* id, const ibv_ece& wanted) {
  ibv_ece ece{~0u, ~0u, ~0u};
  check(rdma_get_remote_ece(id, &ece), "rdma_get_remote_ece");
  if (ece.vendor_id == wanted.vendor_id && ece.options == wanted.options) return;
  std::fprintf(stderr, "ece: received vendor 0x%x, options 0x%x; expected 0x%x, 0x%x\n", ece.vendor_id, ece.options,
               wanted.vendor_id, wanted.options);
  std::exit(1);
}

void set_local(rdma_cm_id* id, ibv_ece ece) { check(rdma_set_local_ece(id, &ece), "rdma_set_local_ece"); }

/// The number of a new QP: a connection names one of the program's. It lives as long as the program.
std::uint32_t new_qp(rdma_cm_id* id) {
  ibv_pd* const pd = ibv_alloc_pd(id->verbs);
  ibv_cq* const cq = pd != nullptr ? ibv_create_cq(id->verbs, 1, nullptr, nullptr, 0) : nullptr;
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {1, 1, 1, 1, 0};
  ibv_qp* const qp = cq != nullptr ? ibv_create_qp(pd, &init) : nullptr;
  if (qp == nullptr) fail("no QP");
  return qp->qp_num;
}

rdma_conn_param parameters(std::uint32_t qpn) {
  rdma_conn_param param{};
  param.qp_num = qpn;
  param.retry_count = param.rnr_retry_count = 7;
  return param;
}

rdma_cm_id* listen(rdma_event_channel* channel, sockaddr* address, rdma_port_space space) {
  rdma_cm_id* listener = nullptr;
  check(rdma_create_id(channel, &listener, nullptr, space), "rdma_create_id");
  check(rdma_bind_addr(listener, address), "rdma_bind_addr");
  check(rdma_listen(listener, 4), "rdma_listen");
  return listener;
}

void serve(rdma_event_channel* channel) {
  for (int round = 0; round < 3; ++round) {
    rdma_cm_id* const id = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST).id;
    expect_remote(id, round == 1 ? kNone : kRequested);
    if (round == 2) {
      check(rdma_reject_ece(id, nullptr, 0), "rdma_reject_ece");
    } else {
      if (round == 0) set_local(id, kGranted);
      rdma_conn_param param = parameters(new_qp(id));
      check(rdma_accept(id, &param), "rdma_accept");
      expect(channel, RDMA_CM_EVENT_ESTABLISHED);
      expect(channel, RDMA_CM_EVENT_DISCONNECTED);
      rdma_disconnect(id);
    }
    check(rdma_destroy_id(id), "rdma_destroy_id");
  }
}

void serve_datagrams(rdma_event_channel* channel) {
  rdma_cm_id* const id = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST).id;
  expect_remote(id, kNone);
  set_local(id, kGranted);
  rdma_conn_param param = parameters(300);
  check(rdma_accept(id, &param), "rdma_accept");
  check(rdma_destroy_id(id), "rdma_destroy_id");
}

void resolve(rdma_event_channel* channel, rdma_cm_id* id, sockaddr* address) {
  check(rdma_resolve_addr(id, nullptr, address, 2000), "rdma_resolve_addr");
  expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
  check(rdma_resolve_route(id, 2000), "rdma_resolve_route");
  expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

void ask_for_datagrams(rdma_event_channel* channel, sockaddr* address) {
  rdma_cm_id* id = nullptr;
  check(rdma_create_id(channel, &id, nullptr, RDMA_PS_UDP), "rdma_create_id");
  resolve(channel, id, address);
  set_local(id, kRequested);
  rdma_conn_param param = parameters(400);
  check(rdma_connect(id, &param), "rdma_connect");
  expect(channel, RDMA_CM_EVENT_ESTABLISHED);
  expect_remote(id, kGranted);
  check(rdma_destroy_id(id), "rdma_destroy_id");
}

void connect(rdma_event_channel* channel, sockaddr* address, int round) {
  rdma_cm_id* id = nullptr;
  check(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), "rdma_create_id");
  resolve(channel, id, address);
  ibv_ece of_no_vendor{};
  if (rdma_set_local_ece(id, &of_no_vendor) != -1 || errno != EOPNOTSUPP) fail("rdma_set_local_ece of no vendor");
  if (round != 1) set_local(id, kRequested);
  rdma_conn_param param = parameters(new_qp(id));
  check(rdma_connect(id, &param), "rdma_connect");
  if (round == 2) {
    if (expect(channel, RDMA_CM_EVENT_REJECTED).status != kVendorOptionNotSupported) fail("another reason");
  } else {
    expect(channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
    expect_remote(id, round == 0 ? kGranted : kNone);
    check(rdma_establish(id), "rdma_establish");
    check(rdma_disconnect(id), "rdma_disconnect");
    expect(channel, RDMA_CM_EVENT_DISCONNECTED);
  }
  check(rdma_destroy_id(id), "rdma_destroy_id");
}

}  // namespace

int main(int argc, char** argv) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(kPort);
  if (argc != 3 || inet_pton(AF_INET, argv[2], &address.sin_addr) != 1) {
    std::fprintf(stderr, "usage: ece server|client ADDRESS\n");
    return 2;
  }
  rdma_event_channel* const channel = rdma_create_event_channel();
  if (channel == nullptr) fail("rdma_create_event_channel");
  auto* const to = reinterpret_cast<sockaddr*>(&address);
  if (std::strcmp(argv[1], "server") == 0) {
    rdma_cm_id* const listeners[] = {listen(channel, to, RDMA_PS_UDP), listen(channel, to, RDMA_PS_TCP)};
    serve(channel);
    serve_datagrams(channel);
    for (rdma_cm_id* listener : listeners) check(rdma_destroy_id(listener), "rdma_destroy_id");
  } else {
    for (int round = 0; round < 3; ++round) connect(channel, to, round);
    ask_for_datagrams(channel, to);
  }
  rdma_destroy_event_channel(channel);
  return 0;
}
