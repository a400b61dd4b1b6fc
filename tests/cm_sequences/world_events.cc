// Events: which channels are readable, and which events they deliver.
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "world.h"

namespace cm_sequences {

void World::expect_event(Id& id, Expected expected) {
  const bool end = expected.type == RDMA_CM_EVENT_REJECTED || expected.type == RDMA_CM_EVENT_DISCONNECTED;
  if (end && id.failed) {
    id.channel->may_hold_more = true;  // the library takes it, and does not deliver it
    return;
  }
  id.events.push_back(std::move(expected));
}

bool World::must_hold(const Channel& channel) {
  bool some = false;
  for_each([&](Id& id) { some |= id.channel == &channel && !id.events.empty(); });
  return some;
}

bool World::check(Channel& channel) {
  const bool some = must_hold(channel);
  bool maybe = some || channel.may_hold_more;
  for_each([&](Id& id) { maybe |= id.channel == &channel && id.exits > 0; });
  pollfd one{channel.real->fd, POLLIN, 0};
  const bool readable = poll(&one, 1, some ? 10000 : 0) == 1;
  if (some && !readable) fail("an event should wait in a channel, and poll(2) says that there is none");
  if (!maybe && readable) fail("no event can wait in a channel, and poll(2) says that there is one");
  return maybe;
}

bool World::take_event(Channel& channel, bool keep) {
  const bool maybe = check(channel);
  const bool some = must_hold(channel);
  rdma_cm_event* event = nullptr;
  const int answer = rdma_get_cm_event(channel.real, &event);
  ++ground_.calls;
  if (answer != 0) {
    if (errno != EAGAIN) fail("rdma_get_cm_event: errno " + std::to_string(errno));
    if (some) fail("rdma_get_cm_event returns no event, and one must wait");
    channel.may_hold_more = false;
    return false;
  }
  ++ground_.events;
  Id* owner = nullptr;
  const rdma_cm_id* const real = event->listen_id != nullptr ? event->listen_id : event->id;
  for (const auto& id : ids_) {
    if (id != nullptr && id->real == real) owner = id.get();
  }
  const std::size_t length = event->param.conn.private_data_len;  // param.ud begins in the same way
  const auto* const data = static_cast<const std::uint8_t*>(event->param.conn.private_data);
  held_.push_back({event, owner, data == nullptr ? Data{} : Data(data, data + length)});
  if (!maybe) fail(std::string("event '") + rdma_event_str(event->event) + "': nothing caused one");
  compare(channel, *event);
  if (!keep) acknowledge(held_.size() - 1);
  return true;
}

void World::compare(Channel& channel, const rdma_cm_event& event) {
  Id* const id = held_.back().owner;
  const std::string title =
      std::string("event '") + rdma_event_str(event.event) + "' (status " + std::to_string(event.status) + "): ";
  if (ground_.trace) std::printf("    %s\n", title.c_str());
  if (id == nullptr) fail(title + "there is no such id");
  show(*id);
  if (id->channel != &channel) fail(title + "in another channel than its id's");
  if (event.event == RDMA_CM_EVENT_TIMEWAIT_EXIT && id->events.empty() && id->exits > 0) {
    --id->exits;
    return;
  }
  if (id->events.empty()) fail(title + "nothing caused it");
  auto at = id->events.begin();
  if (event.event == RDMA_CM_EVENT_CONNECT_REQUEST) {
    // A listener at any address has those of each device in their order.
    const sockaddr* const own = rdma_get_local_addr(event.id);
    at = std::find_if(id->events.begin(), id->events.end(), [&](const Expected& one) {
      return one.request != nullptr && Ground::same_address(own, ground_.address(one.request->side, 0));
    });
    if (at == id->events.end()) fail(title + "of another address than all that must come");
  }
  const Expected expected = *at;
  id->events.erase(at);
  if (expected.type == RDMA_CM_EVENT_CONNECT_RESPONSE) {
    take_response(*id, event, title);
    if (event.event == RDMA_CM_EVENT_CONNECT_ERROR) return;
    compare_data(title, event, expected);
    compare_parameters(title, *id, event, expected);
    return;
  }
  const bool other = expected.or_status != 0 && event.status == expected.or_status;
  if (event.event != expected.type || (event.status != expected.status && !other)) {
    fail(title + "it should be '" + rdma_event_str(expected.type) + "', status " + std::to_string(expected.status));
  }
  compare_data(title, event, expected);
  compare_parameters(title, *id, event, expected);
  if (event.event == RDMA_CM_EVENT_REJECTED) id->qp_error = id->has_qp();
  if (event.event == RDMA_CM_EVENT_CONNECT_REQUEST) take_request(*id, event, *expected.request);
}

/// Of a connection request, and of an answer. The responder resources of one end are for the requests of the other.
void World::compare_parameters(const std::string& title, const Id& id, const rdma_cm_event& event,
                               const Expected& expected) {
  const rdma_conn_param &is = event.param.conn, &sent = expected.param;
  if (id.datagrams()) {
    if (event.event != RDMA_CM_EVENT_ESTABLISHED) return;
    if (event.param.ud.qp_num != sent.qp_num || event.param.ud.qkey != RDMA_UDP_QKEY)
      fail(title + "another QP number or Q_Key than the peer's");
    return;
  }
  const bool request = event.event == RDMA_CM_EVENT_CONNECT_REQUEST;
  if (!request && expected.type != RDMA_CM_EVENT_CONNECT_RESPONSE) return;
  if (is.qp_num != sent.qp_num) {
    fail(title + "QP number " + std::to_string(is.qp_num) + ", not " + std::to_string(sent.qp_num));
  }
  if (is.responder_resources != sent.initiator_depth || is.initiator_depth != sent.responder_resources)
    fail(title + "other responder_resources or initiator_depth than the peer's");
  if (is.rnr_retry_count != sent.rnr_retry_count || is.flow_control != sent.flow_control ||
      (request && is.retry_count != sent.retry_count))
    fail(title + "other counts of retries, or flow control, than the peer's");
}

void World::compare_data(const std::string& title, const rdma_cm_event& event, const Expected& expected) {
  const Data& data = held_.back().data;
  if (event.param.conn.private_data_len != expected.length || data.size() != expected.length) {
    fail(title + std::to_string(event.param.conn.private_data_len) + " bytes of private data, not " +
         std::to_string(expected.length));
  }
  for (std::size_t i = 0; i < data.size(); ++i) {
    const std::uint8_t right = i < expected.data.size() ? expected.data[i] : 0;
    if (data[i] != right) {
      fail(title + "byte " + std::to_string(i) + " of the private data is " + std::to_string(data[i]) + ", not " +
           std::to_string(right));
    }
  }
}

void World::take_request(Id& listener, const rdma_cm_event& event, Id& request) {
  const auto at =
      std::find_if(requests_.begin(), requests_.end(), [&](const auto& one) { return one.get() == &request; });
  request.real = event.id;
  request.listener = &listener;
  auto place = std::find(ids_.begin(), ids_.end(), nullptr);
  if (place == ids_.end()) place = ids_.insert(ids_.end(), nullptr);
  *place = std::move(*at);
  requests_.erase(at);
  const rdma_cm_id& id = *event.id;
  if (event.listen_id != listener.real) fail("CONNECT_REQUEST: listen_id is another id");
  if (id.channel != listener.real->channel) fail("CONNECT_REQUEST: the id is at another channel than the listener");
  if (id.context != listener.real->context) fail("CONNECT_REQUEST: the id has another context than the listener");
  if (id.ps != listener.space || id.qp_type != (listener.datagrams() ? IBV_QPT_UD : IBV_QPT_RC))
    fail("CONNECT_REQUEST: the id has another port space or QP type than the listener");
  const int paths = listener.datagrams() && ground_.differs(Linux::kNoPathOfDatagram) ? 0 : 1;
  if (id.verbs == nullptr || id.pd == nullptr || id.qp != nullptr || id.route.num_paths != paths)
    fail("CONNECT_REQUEST: the id has no device, PD or path, or it has a QP");
  check_addresses(request);
}

void World::take_response(Id& id, const rdma_cm_event& event, const std::string& title) {
  if (!id.has_qp()) {
    if (event.event != RDMA_CM_EVENT_CONNECT_RESPONSE || event.status != 0)
      fail(title + "it should be 'RDMA_CM_EVENT_CONNECT_RESPONSE', as the id has no QP");
    return;
  }
  if (id.state == State::kResponded && !id.qp_error) {
    if (event.event != RDMA_CM_EVENT_ESTABLISHED || event.status != 0)
      fail(title + "it should be 'RDMA_CM_EVENT_ESTABLISHED'");
    established(id);
    return;
  }
  // The peer is gone, or the QP can't be used.
  if (event.event != RDMA_CM_EVENT_CONNECT_ERROR || event.status >= 0)
    fail(title + "it should be 'RDMA_CM_EVENT_CONNECT_ERROR' with an errno");
  id.qp_error = id.failed = true;
  std::deque<Expected> events;
  std::swap(events, id.events);
  for (Expected& one : events) expect_event(id, std::move(one));
}

void World::acknowledge(std::size_t place) {
  const Held held = held_[place];
  held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(place));
  const auto* const data = static_cast<const std::uint8_t*>(held.event->param.conn.private_data);
  const bool same = data == nullptr || std::equal(held.data.begin(), held.data.end(), data);
  expect(rdma_ack_cm_event(held.event), {0}, "rdma_ack_cm_event");
  if (!same) fail("the private data of an event changed before rdma_ack_cm_event");
}

void World::acknowledge_all(const Id& id) {
  for (std::size_t i = held_.size(); i-- > 0;) {
    if (held_[i].owner == &id) acknowledge(i);
  }
}

/// Waits for the TIMEWAIT_EXIT of each id that has been connected.
void World::take_exits() {
  if (ground_.differs(Linux::kLongTimewait)) return;
  for (auto& channel : channels_) {
    while (channel && must_hold(*channel)) take_event(*channel, false);
  }
  for (const auto& id : ids_) {
    while (id != nullptr && id->exits > 0) {
      pollfd one{id->channel->real->fd, POLLIN, 0};
      if (poll(&one, 1, 10000) != 1) fail("no TIMEWAIT_EXIT comes");
      take_event(*id->channel, false);
    }
  }
}

}  // namespace cm_sequences
