// Functions of rdma-core 60 and later, which this program finds at run time: the system that builds it may have an
// older rdma_cma.h.
#include <dlfcn.h>
#include <unistd.h>

#include <thread>
#include <utility>

#include "common.h"

namespace cm_events {
namespace {

constexpr std::uint32_t kAddrinfoResolved = 16, kAddrinfoError = 17, kUser = 18;
constexpr int kSa = 0x10, kDns = 0x20;

template <class F>
F* function(const char* name) {
  void* const symbol = dlvsym(RTLD_DEFAULT, name, "RDMACM_1.4");
  if (symbol == nullptr) fail(std::string("the library has no ") + name);
  return reinterpret_cast<F*>(symbol);
}

int write_event(rdma_cm_id* id, std::uint32_t type, int status, std::uint64_t argument) {
  return function<int(rdma_cm_id*, std::uint32_t, int, std::uint64_t)>("rdma_write_cm_event")(id, type, status,
                                                                                              argument);
}
int resolve_addrinfo(rdma_cm_id* id, const char* node, const char* service, const rdma_addrinfo* hints) {
  return function<int(rdma_cm_id*, const char*, const char*, const rdma_addrinfo*)>("rdma_resolve_addrinfo")(
      id, node, service, hints);
}
int query_addrinfo(rdma_cm_id* id, rdma_addrinfo** out) {
  return function<int(rdma_cm_id*, rdma_addrinfo**)>("rdma_query_addrinfo")(id, out);
}

struct Later {
  std::uint32_t type;
  rdma_cm_id* id;
  int status;
  std::uint64_t argument;
  std::string name;
};
Later take_later(rdma_event_channel* channel) {
  rdma_cm_event* event = nullptr;
  check(rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
  Later told{0, event->id, event->status, 0, rdma_event_str(event->event)};
  std::memcpy(&told.type, &event->event, sizeof(told.type));
  std::memcpy(&told.argument, &event->param, sizeof(told.argument));
  check(rdma_ack_cm_event(event), "rdma_ack_cm_event");
  return told;
}

void demand_user(rdma_event_channel* channel, rdma_cm_id* id, int status, std::uint64_t argument) {
  const Later told = take_later(channel);
  demand(told.type == kUser && told.id == id && told.status == status && told.argument == argument,
         "the event that was written");
  demand(told.name == "RDMA_CM_EVENT_USER", "its name");
}

void write_events(const char* host) {
  rdma_event_channel *const channel = make_channel(), *const other = make_channel();
  Address to(host, kPort);
  rdma_cm_id *const id = make_id(channel), *const second = make_id(channel, RDMA_PS_UDP);
  for (std::uint32_t type : {0u, 9u, 16u, 17u, 19u, 20u, UINT32_MAX}) {
    expect_error(write_event(id, type, 0, 0), EINVAL, "rdma_write_cm_event of another type");
  }
  expect_error(write_event(nullptr, kUser, 0, 0), EINVAL, "rdma_write_cm_event of no id");
  demand(is_empty(channel), "a call that is refused causes no event");
  // Before the id is bound, once it is, and in the order of the calls.
  check(write_event(id, kUser, -7, UINT64_MAX), "rdma_write_cm_event");
  check(write_event(second, kUser, 7, 1), "rdma_write_cm_event");
  demand_user(channel, id, -7, UINT64_MAX);
  demand_user(channel, second, 7, 1);
  demand(is_empty(channel), "no event is left");
  resolve(id, to.get());
  check(write_event(id, kUser, 0, 2), "rdma_write_cm_event");
  demand(fills(channel), "the channel becomes readable");
  check(rdma_migrate_id(id, other), "rdma_migrate_id");
  demand(is_empty(channel), "the event moves with its id");
  demand_user(other, id, 0, 2);
  check(write_event(id, kUser, 0, 3), "rdma_write_cm_event");
  check(write_event(second, kUser, 0, 4), "rdma_write_cm_event");
  for (rdma_cm_id* each : {id, second}) check(rdma_destroy_id(each), "rdma_destroy_id");
  demand(is_empty(channel) && is_empty(other), "the events go with their id");
  for (rdma_event_channel* each : {channel, other}) rdma_destroy_event_channel(each);
}

/// A thread that waits in rdma_get_cm_event(3) is woken.
void wake_a_thread() {
  rdma_event_channel* const channel = make_channel();
  rdma_cm_id* const id = make_id(channel);
  std::thread waiter([&] {
    for (std::uint64_t i = 0; i < 100; ++i) demand_user(channel, id, 0, i);
  });
  for (std::uint64_t i = 0; i < 100; ++i) {
    if (i % 10 == 0) usleep(1000);
    check(write_event(id, kUser, 0, i), "rdma_write_cm_event");
  }
  waiter.join();
  check(rdma_destroy_id(id), "rdma_destroy_id");
  rdma_destroy_event_channel(channel);
}

void resolve_names(const char* host) {
  rdma_event_channel* const channel = make_channel();
  rdma_cm_id* id = make_id(channel);
  rdma_addrinfo hints{}, *found = nullptr;
  hints.ai_port_space = RDMA_PS_TCP;
  expect_error(query_addrinfo(id, &found), ENOENT, "rdma_query_addrinfo of nothing");
  hints.ai_flags = kSa | kDns;
  expect_error(resolve_addrinfo(id, host, kPort, &hints), EINVAL, "RAI_SA with RAI_DNS");
  hints.ai_flags = kSa;
  expect_error(resolve_addrinfo(id, nullptr, kPort, &hints), EOPNOTSUPP, "RAI_SA");
  expect_error(resolve_addrinfo(id, nullptr, nullptr, nullptr), EINVAL, "nothing to resolve");
  demand(is_empty(channel), "a call that is refused causes no event");
  for (const int flags : {0, kDns, int{RAI_NUMERICHOST}}) {
    hints.ai_flags = flags;
    check(resolve_addrinfo(id, host, kPort, &hints), "rdma_resolve_addrinfo");
    expect_error(resolve_addrinfo(id, host, kPort, &hints), EBUSY, "rdma_resolve_addrinfo again");
    const Later told = take_later(channel);
    demand(told.type == kAddrinfoResolved && told.status == 0 && told.id == id, "ADDRINFO_RESOLVED");
    demand(told.name == "RDMA_CM_EVENT_ADDRINFO_RESOLVED", "its name");
    check(query_addrinfo(id, &found), "rdma_query_addrinfo");
    demand(found->ai_port_space == RDMA_PS_TCP && found->ai_dst_len != 0, "what was found");
    expect_error(query_addrinfo(id, &found), ENOENT, "rdma_query_addrinfo again");
    resolve(id, found->ai_dst_addr);
    rdma_freeaddrinfo(found);
    check(rdma_destroy_id(std::exchange(id, make_id(channel))), "rdma_destroy_id");
  }
  hints.ai_flags = RAI_NUMERICHOST;
  check(resolve_addrinfo(id, "no number", kPort, &hints), "rdma_resolve_addrinfo");
  const Later told = take_later(channel);
  demand(told.type == kAddrinfoError && told.status != 0, "ADDRINFO_ERROR");
  expect_error(query_addrinfo(id, &found), ENOENT, "rdma_query_addrinfo after an error");
  check(resolve_addrinfo(id, host, kPort, &hints), "rdma_resolve_addrinfo after an error");
  demand(fills(channel), "it ends");
  check(rdma_destroy_id(id), "rdma_destroy_id, with a result that nobody took");
  demand(is_empty(channel), "its event goes with the id");
  rdma_destroy_event_channel(channel);
}

/// An id without a channel waits, and may be destroyed while a thread resolves.
void resolve_and_destroy(const char* host) {
  rdma_cm_id* const alone = make_id(nullptr);
  check(resolve_addrinfo(alone, host, kPort, nullptr), "rdma_resolve_addrinfo, synchronous");
  rdma_addrinfo* found = nullptr;
  check(query_addrinfo(alone, &found), "rdma_query_addrinfo");
  rdma_freeaddrinfo(found);
  check(rdma_destroy_id(alone), "rdma_destroy_id");
  rdma_event_channel* const channel = make_channel();
  for (int i = 0; i < 200; ++i) {
    rdma_cm_id* const id = make_id(channel);
    check(resolve_addrinfo(id, host, kPort, nullptr), "rdma_resolve_addrinfo");
    if (i % 3 == 0) usleep(100);
    check(rdma_destroy_id(id), "rdma_destroy_id");
  }
  demand(is_empty(channel), "no event outlives its id");
  rdma_destroy_event_channel(channel);
}

}  // namespace

void call_later(char** words) {
  write_events(words[0]);
  wake_a_thread();
  resolve_names(words[0]);
  resolve_and_destroy(words[0]);
}

}  // namespace cm_events
