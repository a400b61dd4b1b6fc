// The course of a sequence, and what outlives it.
#include "world.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace cm_sequences {
namespace {

void set_port(sockaddr_storage& address, std::uint16_t port) {
  if (address.ss_family == AF_INET) reinterpret_cast<sockaddr_in&>(address).sin_port = htons(port);
  if (address.ss_family == AF_INET6) reinterpret_cast<sockaddr_in6&>(address).sin6_port = htons(port);
}

void must(int result, const char* what) {
  if (result != 0) throw Failed{std::string(what) + ": " + std::strerror(errno)};
}

}  // namespace

Ground::Ground(const std::vector<std::string>& ends, bool t) : trace(t), sides(ends.size()) {
  for (std::size_t i = 0; i < 2; ++i) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_flags = AI_NUMERICHOST;
    const std::string& end = ends[i % sides];
    if (getaddrinfo(end.c_str(), nullptr, &hints, &found) != 0) throw Failed{"not an address: " + end};
    std::memcpy(&addresses_[i], found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
  }
  channel_ = rdma_create_event_channel();
  must(channel_ == nullptr ? -1 : 0, "rdma_create_event_channel");
  fcntl(channel_->fd, F_SETFL, O_NONBLOCK);
  rdma_cm_id* id = nullptr;
  must(rdma_create_id(channel_, &id, nullptr, RDMA_PS_TCP), "rdma_create_id");
  sockaddr_storage own = address(0, 0);
  must(rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&own)), "rdma_bind_addr to the first address");
  if (std::strncmp(ibv_get_device_name(id->verbs->device), "uroce", 5) != 0) differs.apply();
  must(rdma_destroy_id(id), "rdma_destroy_id");
  for (std::size_t i = 0; i < sides; ++i) marker(0, i);
}

Ground::~Ground() {
  if (channel_ != nullptr) rdma_destroy_event_channel(channel_);
}

sockaddr_storage Ground::address(std::size_t side, std::uint16_t port) const {
  sockaddr_storage out = addresses_[side];
  set_port(out, port);
  return out;
}

sockaddr_storage Ground::any(std::uint16_t port) const {
  sockaddr_storage out{};
  out.ss_family = addresses_[0].ss_family;
  set_port(out, port);
  return out;
}

bool Ground::same_address(const sockaddr* left, const sockaddr_storage& right) {
  if (left->sa_family != right.ss_family) return false;
  if (left->sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(left)->sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in&>(right).sin_addr.s_addr;
  }
  return std::memcmp(&reinterpret_cast<const sockaddr_in6*>(left)->sin6_addr,
                     &reinterpret_cast<const sockaddr_in6&>(right).sin6_addr, 16) == 0;
}

void Ground::take(rdma_cm_event_type type, int status) {
  pollfd one{channel_->fd, POLLIN, 0};
  if (poll(&one, 1, 10000) != 1) throw Failed{std::string("the marker has no event ") + rdma_event_str(type)};
  rdma_cm_event* event = nullptr;
  must(rdma_get_cm_event(channel_, &event), "rdma_get_cm_event");
  const bool right = event->event == type && event->status == status;
  const std::string other = std::string("the marker has another event: ") + rdma_event_str(event->event) + ", " +
                            std::to_string(event->status);
  rdma_ack_cm_event(event);
  if (!right) throw Failed{other};
}

void Ground::marker(std::size_t from, std::size_t to) {
  rdma_cm_id* id = nullptr;
  must(rdma_create_id(channel_, &id, nullptr, RDMA_PS_UDP), "rdma_create_id");
  sockaddr_storage own = address(from, 0), other = address(to, kNobodysPort);
  must(rdma_resolve_addr(id, reinterpret_cast<sockaddr*>(&own), reinterpret_cast<sockaddr*>(&other), 5000),
       "rdma_resolve_addr");
  take(RDMA_CM_EVENT_ADDR_RESOLVED, 0);
  must(rdma_resolve_route(id, 5000), "rdma_resolve_route");
  take(RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
  rdma_conn_param param{};
  must(rdma_connect(id, &param), "rdma_connect");
  take(RDMA_CM_EVENT_UNREACHABLE, kNoService);
  must(rdma_destroy_id(id), "rdma_destroy_id");
}

int World::expect(int answer, Allowed allowed, const char* call) {
  const int error = answer == 0 ? 0 : errno;
  ++ground_.calls;
  if (error != 0) ++ground_.refused;
  if (ground_.trace) std::printf("    %s: %d\n", call, error);
  const bool defined = answer == 0 || answer == -1;
  if (defined && std::find(allowed.begin(), allowed.end(), error) != allowed.end()) return error;
  std::string text = std::string(call) + ": returns " + std::to_string(answer) + ", errno " +
                     std::to_string(error) + " (" + std::strerror(error) + "), not";
  for (const int one : allowed) text += " " + std::to_string(one);
  throw Failed{text};
}

void World::for_each(const std::function<void(Id&)>& call) {
  for (const auto* all : {&ids_, &requests_}) {
    for (const auto& id : *all) {
      if (id != nullptr) call(*id);
    }
  }
}

Id* World::find(unsigned place, const std::function<bool(const Id&)>& matches) {
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    const auto& id = ids_[(place + i) % ids_.size()];
    if (id != nullptr && matches(*id)) return id.get();
  }
  return nullptr;
}

void World::show(const Id& id) const {
  if (!ground_.trace) return;
  const auto place = std::find_if(ids_.begin(), ids_.end(), [&](const auto& at) { return at.get() == &id; });
  std::printf("    id %td, port %u, in state %d\n", place - ids_.begin(), id.port, static_cast<int>(id.state));
}

Id* World::find_in(const Operation& op, std::initializer_list<State> states) {
  if (op.c % 8 == 0) return find(op.a);
  return find(op.a,
              [&](const Id& id) { return std::find(states.begin(), states.end(), id.state) != states.end(); });
}

Channel* World::find_channel(unsigned place) {
  for (std::size_t i = 0; i < channels_.size(); ++i) {
    if (auto& at = channels_[(place + i) % channels_.size()]) return &*at;
  }
  return nullptr;
}

/// None, as much as there is room for, too much, or something in between.
Data World::draw_data(Random& random, std::size_t most) const {
  std::size_t bytes = 0;
  switch (random.below(8)) {
    case 0: break;
    case 1: bytes = most; break;
    case 2: bytes = most + 1 + random.below(static_cast<std::uint32_t>(255 - most)); break;
    default: bytes = random.below(static_cast<std::uint32_t>(most + 1));
  }
  Data data(bytes);
  for (std::uint8_t& byte : data) byte = static_cast<std::uint8_t>(1 + random.below(255));
  return data;
}

void World::settle() {
  for (std::size_t from = 0; from < 2; ++from) {
    for (std::size_t to = 0; to < 2; ++to) {
      if (under_way_[from][to]) ground_.marker(from, to);
      under_way_[from][to] = false;
    }
  }
}

bool World::some_under_way() const {
  return under_way_[0][0] || under_way_[0][1] || under_way_[1][0] || under_way_[1][1];
}

bool World::may_hurry(const Operation& op) {
  const bool known = op.kind == Kind::kDestroyId || op.kind == Kind::kConnect || op.kind == Kind::kCreateId;
  return known && op.c % 4 == 1 && !ground_.differs(Linux::kLateCalls);
}

void World::run(const Operation& op) {
  Random random(op.choices);
  if (!may_hurry(op)) settle();
  in_a_hurry_ = some_under_way();
  const auto with = [&](Id* id, const auto& call) {
    if (id == nullptr) return;
    show(*id);
    call(*id);
  };
  using enum State;
  switch (op.kind) {
    case Kind::kCreateChannel: return create_channel();
    case Kind::kDestroyChannel: return destroy_channel(op);
    case Kind::kCreateId: return create_id(op, random);
    case Kind::kDestroyId: {
      // Mostly those with which nothing else can be done.
      Id* const closed = op.b % 4 != 0 ? find(op.a, [](const Id& id) { return id.state == kClosed; }) : nullptr;
      return with(closed != nullptr ? closed : find(op.a), [&](Id& id) { destroy_id(id); });
    }
    case Kind::kBind: return with(find_in(op, {kIdle}), [&](Id& id) { bind(id, op, random); });
    case Kind::kListen: return with(find_in(op, {kIdle, kBound}), [&](Id& id) { listen(id, random); });
    case Kind::kResolveAddress:
      return with(find_in(op, {kIdle, kBound}), [&](Id& id) { resolve_address(id, op, random); });
    case Kind::kResolveRoute: return with(find_in(op, {kResolved}), [&](Id& id) { resolve_route(id); });
    case Kind::kReady:
      return with(find_in(op, {kIdle}), [&](Id& id) {
        resolve_address(id, op, random);
        settle();
        resolve_route(id);
        settle();
        create_qp(id);
      });
    case Kind::kCreateQp:
      return with(find_in(op, {kResolved, kRouted, kRequested}), [&](Id& id) { create_qp(id); });
    case Kind::kDestroyQp: return with(find(op.a), [&](Id& id) { destroy_qp(id); });
    case Kind::kConnect: return with(find_in(op, {kRouted}), [&](Id& id) { connect(id, random); });
    case Kind::kAccept: return with(find_in(op, {kRequested}), [&](Id& id) { accept(id, random); });
    case Kind::kReject: return with(find_in(op, {kRequested, kResponded}), [&](Id& id) { reject(id, random); });
    case Kind::kEstablish: return with(find_in(op, {kResponded}), [&](Id& id) { establish(id); });
    case Kind::kDisconnect:
      return with(find_in(op, {kConnected, kAccepted, kClosed}), [&](Id& id) { disconnect(id); });
    case Kind::kNotify: return with(find_in(op, {kAccepted, kConnected}), [&](Id& id) { notify(id, random); });
    case Kind::kMigrate: return with(find(op.a), [&](Id& id) { migrate(id, op); });
    case Kind::kSetOption: return with(find(op.a), [&](Id& id) { set_option(id, random); });
    case Kind::kAddresses: return with(find(op.a), [&](Id& id) { check_addresses(id); });
    case Kind::kTakeEvent:
      if (Channel* const channel = find_channel(op.a)) take_event(*channel, op.c % 4 == 0);
      return;
    case Kind::kTakeAll:
      for (auto& channel : channels_) {
        while (channel && must_hold(*channel)) take_event(*channel, false);
      }
      return;
    case Kind::kAcknowledge:
      if (!held_.empty()) acknowledge(op.a % held_.size());
      return;
    case Kind::kTakeExits: return take_exits();
    case Kind::kCount: break;
  }
}

void World::finish() {
  settle();
  // In half of the sequences ids are destroyed with all that waits for them.
  for (auto& channel : channels_) {
    while (channel && ids_.size() % 2 == 0 && must_hold(*channel)) take_event(*channel, false);
  }
  const bool hurry = ids_.size() % 3 == 0 && !ground_.differs(Linux::kLateCalls);
  while (Id* const id = find(0, [&](const Id& one) { return can_be_destroyed(one); })) {
    in_a_hurry_ = some_under_way();
    destroy_id(*id);
    if (!hurry) settle();
    for (auto& channel : channels_) {
      if (channel) check(*channel);
    }
  }
  settle();
  for (auto& channel : channels_) {
    if (!channel) continue;
    take_event(*channel, false);
    channel->may_hold_more = false;
    check(*channel);
    rdma_destroy_event_channel(channel->real);
    channel.reset();
  }
  check_all_ports_are_free();
}

void World::abandon() {
  for (const Held& held : held_) {
    rdma_cm_id* const id = held.event->event == RDMA_CM_EVENT_CONNECT_REQUEST ? held.event->id : nullptr;
    rdma_ack_cm_event(held.event);
    const auto is_known = [&](const auto& one) { return one != nullptr && one->real == id; };
    if (id != nullptr && std::none_of(ids_.begin(), ids_.end(), is_known)) rdma_destroy_id(id);
  }
  held_.clear();
  for (auto& id : ids_) {
    if (id == nullptr) continue;
    if (id->real->qp != nullptr) rdma_destroy_qp(id->real);
    rdma_destroy_id(id->real);
  }
  ids_.clear();
  requests_.clear();
  for (auto& channel : channels_) {
    if (channel) rdma_destroy_event_channel(channel->real);
    channel.reset();
  }
}

}  // namespace cm_sequences
