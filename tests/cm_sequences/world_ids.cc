// Channels and ids up to the connection: addresses, ports, listeners, options, destruction. The errors are those of
// the man pages and of Linux (drivers/infiniband/core/cma.c, ucma.c).
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "world.h"

namespace cm_sequences {
namespace {

sockaddr* plain(sockaddr_storage& address) { return reinterpret_cast<sockaddr*>(&address); }

}  // namespace

void World::create_channel() {
  const auto place = std::find_if(channels_.begin(), channels_.end(), [](const auto& at) { return !at; });
  if (place == channels_.end()) return;
  rdma_event_channel* const made = rdma_create_event_channel();
  expect(made != nullptr ? 0 : -1, {0}, "rdma_create_event_channel");
  fcntl(made->fd, F_SETFL, O_NONBLOCK);
  *place = Channel{made};
  check(**place);
}

void World::destroy_channel(const Operation& op) {
  Channel* const channel = find_channel(op.a);
  if (channel == nullptr) return;
  bool used = false;
  for_each([&](Id& id) { used |= id.channel == channel; });
  if (used) return;  // all its ids must be destroyed or moved first: rdma_destroy_event_channel(3)
  ++ground_.calls;
  rdma_destroy_event_channel(channel->real);
  for (auto& at : channels_) {
    if (at && &*at == channel) at.reset();
  }
}

void World::create_id(const Operation& op, Random& random) {
  Channel* const channel = find_channel(op.a);
  if (channel == nullptr) return;
  rdma_cm_id* real = nullptr;
  if (op.c % 16 == 0) {
    expect(rdma_create_id(channel->real, &real, nullptr, static_cast<rdma_port_space>(0x100)), {EINVAL},
           "rdma_create_id of an unknown port space");
    return;
  }
  if (std::count_if(ids_.begin(), ids_.end(), [](const auto& id) { return id != nullptr; }) >= 16) return;
  const rdma_port_space space = random.below(3) == 0 ? RDMA_PS_UDP : RDMA_PS_TCP;
  auto id = std::make_unique<Id>(Id{nullptr, channel, space});
  expect(rdma_create_id(channel->real, &real, id.get(), space), {0}, "rdma_create_id");
  id->real = real;
  if (real->channel != channel->real || real->context != id.get() || real->ps != space || real->verbs != nullptr ||
      real->qp_type != (space == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC)) {
    fail("rdma_create_id: the members of rdma_cm_id are not what was asked for");
  }
  auto place = std::find(ids_.begin(), ids_.end(), nullptr);
  if (place == ids_.end()) place = ids_.insert(ids_.end(), nullptr);
  *place = std::move(id);
}

/// No, as long as a listener has moved to another channel before it took the id's request: whether the request's
/// end is reported, and where, depends on the device.
bool World::can_be_destroyed(const Id& id) {
  if (drops_dreq(id)) return false;
  return id.state != State::kConnecting || id.peer == nullptr || !id.peer->moved;
}

void World::destroy_id(Id& id) {
  if (!can_be_destroyed(id)) return;
  acknowledge_all(id);
  Channel& channel = *id.channel;
  destroy_qp(id);
  expect(rdma_destroy_id(id.real), {0}, "rdma_destroy_id");
  leave(id);
  for_each([&](Id& other) {
    if (other.peer == &id) other.peer = nullptr;
    if (other.listener == &id) other.listener = nullptr;
  });
  std::find_if(ids_.begin(), ids_.end(), [&](const auto& one) { return one.get() == &id; })->reset();
  check(channel);
}

// cma_check_port
int World::check_port(const Id& id, std::uint16_t port, bool any_address, std::size_t side, bool may_share) const {
  for (const auto& other : ids_) {
    if (other == nullptr || other.get() == &id || !other->owns_port || other->port != port ||
        other->space != id.space)
      continue;
    if (may_share && id.reuse && other->reuse && other->state != State::kListening) continue;
    if (any_address || other->any_address) return EADDRNOTAVAIL;
    if (other->side == side) return EADDRINUSE;
  }
  return 0;
}

void World::bind(Id& id, const Operation& op, Random& random) {
  const std::size_t side = op.side % ground_.sides;
  const auto port = static_cast<std::uint16_t>(random.below(4) == 0 ? 0 : kFirstPort + random.below(kPorts));
  const unsigned which = random.below(10);
  const bool any_address = which < 3;
  sockaddr_storage address = any_address ? ground_.any(port) : ground_.address(side, port);
  if (which == 3) {
    address.ss_family = AF_UNIX;
    expect(rdma_bind_addr(id.real, plain(address)), {EINVAL}, "rdma_bind_addr of an unknown family");
    return;
  }
  if (which == 4 && address.ss_family == AF_INET) {
    reinterpret_cast<sockaddr_in&>(address).sin_addr.s_addr = htonl(0xcb00714d);  // 203.0.113.77
    const int none = id.state == State::kIdle ? ENODEV : EINVAL;
    const bool otherwise = none == ENODEV && ground_.differs(Linux::kOtherHost);
    expect(rdma_bind_addr(id.real, plain(address)), {none, otherwise ? EADDRNOTAVAIL : none},
           "rdma_bind_addr to an address of another host");
    return;
  }
  if (id.state != State::kIdle) {
    expect(rdma_bind_addr(id.real, plain(address)), {EINVAL}, "rdma_bind_addr of an id that has an address");
    return;
  }
  const int error = port == 0 ? 0 : check_port(id, port, any_address, side, true);
  expect(rdma_bind_addr(id.real, plain(address)), {error},
         any_address ? "rdma_bind_addr to any address" : "rdma_bind_addr");
  if (error != 0) return;
  id.state = State::kBound;
  id.owns_port = true;
  id.any_address = any_address;
  id.side = side;
  id.port = ntohs(rdma_get_src_port(id.real));
  if (id.port == 0 || (port != 0 && id.port != port)) fail("rdma_bind_addr: the id has another port");
  if ((id.real->verbs == nullptr) != any_address) fail("rdma_bind_addr: the id has a device, or it has none");
  check_addresses(id);
}

void World::listen(Id& id, Random& random) {
  constexpr int kBacklogs[] = {0, 1, 2, 8, 1000, -1};
  const int backlog = kBacklogs[random.below(std::size(kBacklogs))];
  if (id.state != State::kIdle && id.state != State::kBound) {
    if (id.state == State::kListening && ground_.differs(Linux::kListenTwice)) return;
    expect(rdma_listen(id.real, backlog), {EINVAL}, "rdma_listen in a wrong state");
    return;
  }
  const bool fresh = id.state == State::kIdle;
  if (fresh && ground_.any(0).ss_family != AF_INET) return;  // it would listen on IPv4
  const int error = fresh ? 0 : check_port(id, id.port, id.any_address, id.side, false);
  expect(rdma_listen(id.real, backlog), {error}, fresh ? "rdma_listen of an id without address" : "rdma_listen");
  if (error != 0) return;
  if (fresh) {
    id.owns_port = id.any_address = true;
    id.port = ntohs(rdma_get_src_port(id.real));
    if (id.port == 0) fail("rdma_listen: the id has no port");
  }
  id.state = State::kListening;
  id.reuse = false;
  id.backlog = static_cast<std::uint32_t>(std::max(backlog, 0));
}

void World::resolve_address(Id& id, const Operation& op, Random& random) {
  std::size_t from = op.side % ground_.sides, to = random.below(2) % ground_.sides;
  std::uint16_t port = kFirstPort + static_cast<std::uint16_t>(random.below(kPorts));
  const Id* const listener =
      find(op.b, [&](const Id& one) { return one.state == State::kListening && one.space == id.space; });
  if (listener != nullptr && random.below(8) != 0) {
    port = listener->port;
    if (!listener->any_address) to = listener->side;
  }
  sockaddr_storage source = ground_.address(from, 0), destination = ground_.address(to, port);
  const bool legal = id.state == State::kIdle || id.state == State::kBound;
  if (random.below(12) == 0) {
    sockaddr_storage& wrong = random.below(2) == 0 ? source : destination;
    wrong.ss_family = AF_UNIX;
    expect(rdma_resolve_addr(id.real, plain(source), plain(destination), 5000), {EINVAL},
           "rdma_resolve_addr of an unknown family");
    return;
  }
  if (!legal) {
    expect(rdma_resolve_addr(id.real, plain(source), plain(destination), 5000), {EINVAL},
           "rdma_resolve_addr in a wrong state");
    return;
  }
  // An id that is bound keeps its address; one that is bound to any takes the device of the destination.
  if (id.state == State::kBound) from = id.any_address ? to : id.side;
  const bool with_source = ground_.sides == 2 || random.below(2) == 0;
  expect(rdma_resolve_addr(id.real, with_source ? plain(source) : nullptr, plain(destination), 5000), {0},
         "rdma_resolve_addr");
  id.owns_port = true;
  id.any_address = false;
  id.side = from;
  id.peer_side = to;
  id.peer_port = port;
  id.state = State::kResolved;
  sent(id);
  expect_event(id, {RDMA_CM_EVENT_ADDR_RESOLVED});
  check_addresses(id);
}

void World::resolve_route(Id& id) {
  if (lacks_device(id)) return;
  if (id.state != State::kResolved) {
    expect(rdma_resolve_route(id.real, 5000), {EINVAL}, "rdma_resolve_route in a wrong state");
    return;
  }
  expect(rdma_resolve_route(id.real, 5000), {0}, "rdma_resolve_route");
  id.state = State::kRouted;
  sent(id);
  expect_event(id, {RDMA_CM_EVENT_ROUTE_RESOLVED});
}

void World::migrate(Id& id, const Operation& op) {
  Channel* const to = find_channel(op.b);
  if (to == nullptr) return;
  const bool waits =
      std::any_of(requests_.begin(), requests_.end(), [&](const auto& one) { return one->listener == &id; });
  if (waits && to != id.channel && ground_.differs(Linux::kMovedRequests)) return;
  acknowledge_all(id);  // the call waits for that
  expect(rdma_migrate_id(id.real, to->real), {0}, "rdma_migrate_id");
  if (id.real->channel != to->real) fail("rdma_migrate_id: the id has another channel");
  Channel* const from = id.channel;
  if (from == to) return;
  to->may_hold_more |= from->may_hold_more && id.failed;
  id.channel = to;
  for (const auto& request : requests_) {
    if (request->listener != &id) continue;
    request->channel = to;
    request->moved = true;
  }
  check(*from);
  check(*to);
}

void World::set_option(Id& id, Random& random) {
  std::uint8_t byte = static_cast<std::uint8_t>(random.below(20)), bytes[8] = {};
  int on = static_cast<int>(random.below(2));
  const auto set = [&](int level, int name, void* value, std::size_t length, int error, const char* what) {
    expect(rdma_set_option(id.real, level, name, value, length), {error}, what);
  };
  switch (random.below(10)) {
    case 0: return set(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 1, 0, "rdma_set_option: TOS");
    case 1: return set(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, bytes, 8, EINVAL, "rdma_set_option: TOS, 8 bytes");
    case 2: return set(RDMA_OPTION_ID, 99, &byte, 1, ENOSYS, "rdma_set_option: an unknown name");
    case 3: return set(7, RDMA_OPTION_ID_TOS, &byte, 1, ENOSYS, "rdma_set_option: an unknown level");
    case 4:
      return set(RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &byte, 1, EINVAL, "rdma_set_option: REUSEADDR, 1 byte");
    case 5: return set(RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, bytes, 8, EINVAL, "rdma_set_option: AFONLY, 8 bytes");
    case 6:
      // rdma_set_ack_timeout: of connections only.
      return set(RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, 1, id.datagrams() ? EINVAL : 0,
                 "rdma_set_option: ACK_TIMEOUT");
    case 7: {
      // rdma_set_afonly
      const bool early = id.state == State::kIdle || id.state == State::kBound;
      on = 1;
      return set(RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof(on), early ? 0 : EINVAL,
                 "rdma_set_option: AFONLY");
    }
    default: break;
  }
  // rdma_set_reuseaddr. Set later than rdma_bind_addr, the option lets others share the port on Linux; here it goes
  // with the address.
  if (id.state != State::kIdle && id.state != State::kListening) on = 0;
  const bool right = id.state == State::kIdle;
  set(RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on), right ? 0 : EINVAL, "rdma_set_option: REUSEADDR");
  if (right) id.reuse = on != 0;
}

void World::check_addresses(Id& id) {
  const bool waits = std::any_of(id.events.begin(), id.events.end(),
                                 [](const Expected& one) { return one.type == RDMA_CM_EVENT_ADDR_RESOLVED; });
  if (waits && ground_.differs(Linux::kAddressesWithEvent)) return;
  ++ground_.calls;
  if (id.state == State::kIdle) {
    if (rdma_get_src_port(id.real) != 0 || rdma_get_dst_port(id.real) != 0) fail("a new id has a port");
    return;
  }
  const std::uint16_t port = ntohs(rdma_get_src_port(id.real));
  if (port == 0 || (id.port != 0 && port != id.port)) fail("rdma_get_src_port: " + std::to_string(port));
  id.port = port;
  const sockaddr_storage own = id.any_address ? ground_.any(0) : ground_.address(id.side, 0);
  if (!Ground::same_address(rdma_get_local_addr(id.real), own)) fail("rdma_get_local_addr: another address");
  if (id.state == State::kBound || id.state == State::kListening) return;
  if (ntohs(rdma_get_dst_port(id.real)) != id.peer_port) {
    fail("rdma_get_dst_port: " + std::to_string(ntohs(rdma_get_dst_port(id.real))) + ", not " +
         std::to_string(id.peer_port));
  }
  if (!Ground::same_address(rdma_get_peer_addr(id.real), ground_.address(id.peer_side, 0)))
    fail("rdma_get_peer_addr: another address");
}

void World::check_all_ports_are_free() {
  rdma_event_channel* const channel = rdma_create_event_channel();
  if (channel == nullptr) fail("rdma_create_event_channel");
  std::string left;
  for (const rdma_port_space space : {RDMA_PS_TCP, RDMA_PS_UDP}) {
    for (std::uint16_t i = 0; i < kPorts; ++i) {
      rdma_cm_id* id = nullptr;
      sockaddr_storage address = ground_.any(kFirstPort + i);
      if (rdma_create_id(channel, &id, nullptr, space) != 0) continue;
      if (rdma_bind_addr(id, plain(address)) != 0) left = "port is in use after all ids were destroyed";
      rdma_destroy_id(id);
    }
  }
  rdma_destroy_event_channel(channel);
  if (!left.empty()) fail(left);
}

}  // namespace cm_sequences
