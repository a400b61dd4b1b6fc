// Connections: requests and their answers, the end of connections, and what becomes of the other end. The errors
// are those of the man pages and of Linux (drivers/infiniband/core/cma.c, cm.c); where Linux or rdma-core and uroce
// differ, a comment says so.
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "world.h"

namespace cm_sequences {
namespace {

rdma_conn_param with_data(const Data& data) {
  rdma_conn_param param{};
  param.private_data = data.data();
  param.private_data_len = static_cast<std::uint8_t>(data.size());
  param.retry_count = param.rnr_retry_count = 7;
  return param;
}

}  // namespace

/// Without a device rdma-core crashes in the calls that use it.
bool World::lacks_device(const Id& id) { return id.real->verbs == nullptr && ground_.differs(Linux::kNoDevice); }

void World::create_qp(Id& id) {
  if (lacks_device(id)) return;
  ibv_qp_init_attr init{};
  init.cap = {1, 1, 1, 1, 0};
  init.qp_type = id.datagrams() ? IBV_QPT_UD : IBV_QPT_RC;
  if (id.real->verbs == nullptr || id.has_qp()) {
    expect(rdma_create_qp(id.real, nullptr, &init), {EINVAL},
           id.has_qp() ? "rdma_create_qp of an id that has a QP" : "rdma_create_qp without a device");
    return;
  }
  const bool wrong = id.state == State::kClosed || id.state == State::kListening;
  if (wrong && ground_.differs(Linux::kQpOfEnded)) return;
  expect(rdma_create_qp(id.real, nullptr, &init), {0}, "rdma_create_qp");
  if (!id.has_qp()) fail("rdma_create_qp: the id has no QP");
  id.qp_error = false;
}

void World::destroy_qp(Id& id) {
  if (!id.has_qp()) return;
  ++ground_.calls;
  rdma_destroy_qp(id.real);
  id.qp_error = false;
  if (id.has_qp()) fail("rdma_destroy_qp: the id has a QP");
}

Id* World::listener_of(const Id& client) {
  return find(0, [&](const Id& id) {
    return id.state == State::kListening && id.space == client.space && id.port == client.peer_port &&
           (id.any_address || id.side == client.peer_side);
  });
}

/// A listener without room drops requests, which the client repeats after seconds. Here those are counted that were
/// not answered, and 16 are always taken.
bool World::has_room(const Id& listener) {
  const auto taken = std::count_if(ids_.begin(), ids_.end(), [&](const auto& id) {
    return id != nullptr && id->listener == &listener && id->state == State::kRequested;
  });
  const auto waiting =
      std::count_if(requests_.begin(), requests_.end(), [&](const auto& id) { return id->listener == &listener; });
  if (listener.backlog != 0 && ground_.differs(Linux::kBacklogOfUntaken))
    return waiting < static_cast<std::ptrdiff_t>(listener.backlog);
  return taken + waiting < 15;
}

void World::connect(Id& id, Random& random) {
  if (lacks_device(id)) return;
  const std::size_t most = id.datagrams() ? kInSidrReq : kInReq;
  const Data data = draw_data(random, most);
  rdma_conn_param param = with_data(data);
  param.flow_control = static_cast<std::uint8_t>(random.below(2));
  param.retry_count = static_cast<std::uint8_t>(random.below(8));
  param.rnr_retry_count = static_cast<std::uint8_t>(random.below(8));
  param.initiator_depth = static_cast<std::uint8_t>(random.below(2));
  param.responder_resources = static_cast<std::uint8_t>(random.below(2));
  if (!id.datagrams() && !id.has_qp()) {
    expect(rdma_connect(id.real, nullptr), {EINVAL}, "rdma_connect without a QP");
    return;
  }
  if (id.state != State::kRouted || data.size() > most) {
    expect(
        rdma_connect(id.real, &param), {EINVAL},
        id.state == State::kRouted ? "rdma_connect with too much private data" : "rdma_connect in a wrong state");
    return;
  }
  Id* const listener = listener_of(id);
  if (listener != nullptr && !has_room(*listener)) return;
  expect(rdma_connect(id.real, &param), {0}, "rdma_connect");
  sent(id);
  if (listener == nullptr) {
    id.state = State::kClosed;
    if (id.datagrams()) {
      expect_event(id, {RDMA_CM_EVENT_UNREACHABLE, kNoService, kInSidrRep});
    } else {
      expect_event(id, {RDMA_CM_EVENT_REJECTED, kNoListener, kInRej});
    }
    return;
  }
  id.state = State::kConnecting;
  auto request = std::make_unique<Id>(Id{nullptr, listener->channel, listener->space, State::kRequested});
  request->side = id.peer_side;
  request->peer_side = id.side;
  request->port = listener->port;
  request->peer_port = ntohs(rdma_get_src_port(id.real));
  request->listener = listener;
  request->peer = &id;
  request->requested = true;
  id.peer = request.get();
  Expected expected{RDMA_CM_EVENT_CONNECT_REQUEST, 0, most, data, request.get()};
  expected.param = param;
  expected.param.qp_num = id.has_qp() ? id.real->qp->qp_num : 0;
  expect_event(*listener, std::move(expected));
  requests_.push_back(std::move(request));
}

void World::accept(Id& id, Random& random) {
  if (lacks_device(id)) return;
  const std::size_t most = id.datagrams() ? kInSidrRep : kInRep;
  const Data data = draw_data(random, most);
  rdma_conn_param param = with_data(data);
  param.flow_control = static_cast<std::uint8_t>(random.below(2));
  param.rnr_retry_count = static_cast<std::uint8_t>(random.below(8));
  if (id.state == State::kRequested && !id.has_qp() && random.below(8) != 0) create_qp(id);
  if (!id.has_qp()) {
    if (ground_.differs(Linux::kAcceptNeedsParameters)) return;
    expect(rdma_accept(id.real, nullptr), {EINVAL}, "rdma_accept without a QP");
    return;
  }
  if (id.state != State::kRequested || data.size() > most) {
    const bool requested = id.state == State::kRequested;
    if ((requested || id.state == State::kResponded) && ground_.differs(Linux::kWrongAcceptEnds)) return;
    expect(rdma_accept(id.real, &param), {EINVAL},
           requested ? "rdma_accept with too much private data" : "rdma_accept in a wrong state");
    // The peer is gone: that is noticed after the QP has been moved.
    if (id.state == State::kClosed && !id.was_connected && !id.answered && id.requested && data.size() <= most) {
      id.qp_error = true;
      id.answered = true;
    }
    return;
  }
  sent(id);
  if (id.qp_error && !id.datagrams()) {
    if (ground_.differs(Linux::kWrongAcceptEnds)) return;
    expect(rdma_accept(id.real, &param), {EINVAL}, "rdma_accept with a QP in ERR");
    id.answered = true;
    id.state = State::kClosed;
    if (id.peer == nullptr) return;
    id.peer->state = State::kClosed;
    expect_event(*id.peer, {RDMA_CM_EVENT_REJECTED, kConsumerDefined, kInRej});
    return;
  }
  expect(rdma_accept(id.real, &param), {0}, "rdma_accept");
  id.answered = true;
  if (id.datagrams()) {
    id.state = State::kClosed;
    if (id.peer == nullptr) return;
    id.peer->state = State::kClosed;
    Expected expected{RDMA_CM_EVENT_ESTABLISHED, 0, kInSidrRep, data};
    expected.param.qp_num = id.real->qp->qp_num;
    expect_event(*id.peer, std::move(expected));
    return;
  }
  id.state = State::kAccepted;
  id.peer->state = State::kResponded;
  Expected expected{RDMA_CM_EVENT_CONNECT_RESPONSE, 0, kInRep, data};
  expected.param = param;
  expected.param.qp_num = id.real->qp->qp_num;
  expect_event(*id.peer, std::move(expected));
}

void World::reject(Id& id, Random& random) {
  const std::size_t most = id.datagrams() ? kInSidrRep : kInRej;
  const Data data = draw_data(random, most);
  const bool sent_one = id.state == State::kConnecting || id.state == State::kAccepted;
  if (sent_one && ground_.differs(Linux::kAnswerTakenBack)) return;
  const bool right = id.state == State::kRequested || id.state == State::kResponded;
  const bool fits = data.size() <= most;
  expect(rdma_reject(id.real, data.data(), static_cast<std::uint8_t>(data.size())), {right && fits ? 0 : EINVAL},
         !right ? "rdma_reject in a wrong state"
         : fits ? "rdma_reject"
                : "rdma_reject with too much private data");
  if (!right || !fits) return;
  sent(id);
  id.answered = true;
  id.state = State::kClosed;
  Id* const peer = id.peer;
  if (peer == nullptr) return;
  if (id.datagrams()) {
    expect_event(*peer, {RDMA_CM_EVENT_UNREACHABLE, kRefused, kInSidrRep, data});
  } else {
    expect_event(*peer, {RDMA_CM_EVENT_REJECTED, kConsumerDefined, kInRej, data});
  }
  if (peer->was_connected) ++peer->exits;
  peer->state = State::kClosed;
}

/// The client has sent its RTU.
void World::established(Id& client) {
  client.state = State::kConnected;
  client.was_connected = true;
  ++ground_.connections;
  sent(client);
  Id* const server = client.peer;
  if (server == nullptr || server->state != State::kAccepted) return;
  server->state = State::kConnected;
  server->was_connected = true;
  expect_event(*server, {RDMA_CM_EVENT_ESTABLISHED});
}

void World::establish(Id& id) {
  const bool open = id.state == State::kConnecting || id.state == State::kRequested || id.state == State::kAccepted;
  if (open && ground_.differs(Linux::kEstablishAccepts)) return;
  const bool right = id.state == State::kResponded && !id.has_qp();
  expect(rdma_establish(id.real), {right ? 0 : EINVAL},
         right         ? "rdma_establish"
         : id.has_qp() ? "rdma_establish of an id with a QP"
                       : "rdma_establish in a wrong state");
  if (right) established(id);
}

void World::notify(Id& id, Random& random) {
  if (random.below(4) == 0) {
    expect(rdma_notify(id.real, IBV_EVENT_SQ_DRAINED), {EINVAL}, "rdma_notify of another event");
    return;
  }
  const bool right = id.state == State::kAccepted;
  const int error = id.state == State::kConnected ? EISCONN : EINVAL;
  expect(rdma_notify(id.real, IBV_EVENT_COMM_EST), {right ? 0 : error},
         right ? "rdma_notify" : "rdma_notify in a wrong state");
  if (!right) return;
  id.state = State::kConnected;
  id.was_connected = true;
  expect_event(id, {RDMA_CM_EVENT_ESTABLISHED});
}

/// Both ends see the end of the connection that one of them has asked for.
void World::close_both(Id& id) {
  Id* const peer = id.peer;
  id.state = State::kClosed;
  id.was_connected = true;
  sent(id);
  if (peer == nullptr || peer->state == State::kClosed) return;
  peer->state = State::kClosed;
  if (peer->was_connected) ++peer->exits;
  expect_event(*peer, {RDMA_CM_EVENT_DISCONNECTED});
}

void World::disconnect(Id& id) {
  if (id.real->verbs == nullptr) {
    if (lacks_device(id)) return;
    expect(rdma_disconnect(id.real), {EINVAL}, "rdma_disconnect without a device");
    return;
  }
  if (id.state == State::kAccepted && ground_.differs(Linux::kNoAcceptedDisconnect)) return;
  if (drops_dreq(id)) return;
  id.qp_error = id.has_qp();
  if (id.state == State::kConnected || id.state == State::kAccepted) {
    expect(rdma_disconnect(id.real), {0}, "rdma_disconnect");
    close_both(id);
    ++id.exits;
    id.awaits_reply = ground_.differs(Linux::kDreqAnsweredByProgram);
    if (!id.awaits_reply) expect_event(id, {RDMA_CM_EVENT_DISCONNECTED});
    return;
  }
  if (id.state == State::kClosed && id.was_connected) {
    expect(rdma_disconnect(id.real), {0}, "rdma_disconnect of an id that is disconnected");
    return reply(id);
  }
  // On Linux it moves the QP.
  expect(rdma_disconnect(id.real), {EINVAL, 0}, "rdma_disconnect in a wrong state");
}

/// The server is connected by rdma_notify(3), and the client has not taken its answer.
bool World::drops_dreq(const Id& id) {
  return id.state == State::kConnected && id.peer != nullptr && id.peer->state == State::kResponded &&
         ground_.differs(Linux::kDreqBeforeRtu);
}

void World::reply(Id& id) {
  if (id.peer == nullptr || !std::exchange(id.peer->awaits_reply, false)) return;
  sent(id);
  expect_event(*id.peer, {RDMA_CM_EVENT_DISCONNECTED});
}

void World::leave(Id& id) {
  Id* const peer = id.peer;
  reply(id);
  switch (id.state) {
    case State::kListening:
      for (std::size_t i = requests_.size(); i-- > 0;) {
        if (requests_[i]->listener != &id) continue;
        leave(*requests_[i]);
        for_each([&](Id& other) {
          if (other.peer == requests_[i].get()) other.peer = nullptr;
        });
        requests_.erase(requests_.begin() + static_cast<std::ptrdiff_t>(i));
      }
      return;
    case State::kConnecting:
      if (peer == nullptr || id.datagrams()) return;  // nobody receives it
      peer->state = State::kClosed;
      sent(id);
      if (!ground_.differs(Linux::kRequestGoneQuietly))
        expect_event(*peer, {RDMA_CM_EVENT_REJECTED, kTimedOut, kInRej});
      return;
    case State::kRequested:
    case State::kResponded: {
      if (peer == nullptr) return;
      peer->state = State::kClosed;
      sent(id);
      Expected expected{RDMA_CM_EVENT_REJECTED, kConsumerDefined, kInRej};
      if (id.datagrams()) expected = {RDMA_CM_EVENT_UNREACHABLE, kRefused, kInSidrRep};
      // The request, or the answer, may arrive after the id has gone.
      if (in_a_hurry_ && id.state == State::kResponded) expected.or_status = kTimedOut;
      if (in_a_hurry_ && id.real == nullptr) expected.or_status = id.datagrams() ? kNoService : kNoListener;
      expect_event(*peer, std::move(expected));
      if (peer->was_connected) ++peer->exits;
      return;
    }
    case State::kAccepted:
      if (!ground_.differs(Linux::kDestroyRejects)) return close_both(id);
      sent(id);
      peer->state = State::kClosed;
      return expect_event(*peer, {RDMA_CM_EVENT_REJECTED, kConsumerDefined, kInRej});
    case State::kConnected: return close_both(id);
    default: return;
  }
}

}  // namespace cm_sequences
