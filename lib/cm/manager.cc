#include "cm/manager.h"

#include <algorithm>
#include <cerrno>

#include "cm/manager_impl.h"
#include "cm/manager_send.h"

namespace uroce::cm {
namespace {

/// Private data longer than its area is truncated.
template <std::size_t N>
void fill(PrivateData<N>& area, std::span<const std::byte> from) {
  std::copy_n(from.begin(), std::min(from.size(), N), area.begin());
}

}  // namespace

Manager::Manager(const ManagerConfig& config) : impl_(std::make_unique<Impl>(config)) {}
Manager::~Manager() = default;

int Manager::listen(std::uint64_t service, std::uint32_t backlog, std::uint64_t cookie, const ListenScope& where) {
  if (impl_->find_listener(service, [&](const ListenScope& other) { return other.overlaps(where); }) != nullptr) {
    return EADDRINUSE;
  }
  if (impl_->by_service.size() == impl_->config.max_listeners) return ENOMEM;
  Listener& listener = impl_->new_listener();
  listener = {service, where, cookie, std::max(backlog, 1u), 0, true};
  impl_->by_service.emplace(impl_->hash_of_service(service), impl_->slot_of(listener));
  return 0;
}

void Manager::unlisten(std::uint64_t service, const ListenScope& where) {
  Listener* listener = impl_->find_listener(service, [&](const ListenScope& other) { return other == where; });
  if (listener != nullptr) impl_->remove_listener(*listener);
}

std::optional<ConnectionId> Manager::connect(const Peer& peer, Req req, std::uint64_t cookie, Nanos now) {
  Connection* c = impl_->allocate(peer, cookie);
  if (c == nullptr) return std::nullopt;
  c->active = true;
  c->state = State::kReqSent;
  c->transaction = impl_->next_transaction++;
  c->local_qpn = req.local_qpn;
  req.local_id = impl_->id_of(*c).value;
  req.local_ca_guid = impl_->config.ca_guid;
  req.max_cm_retries = impl_->config.max_retries;
  impl_->send_until_answered(*c, req, now);
  return impl_->id_of(*c);
}

bool Manager::accept(ConnectionId id, Rep rep, std::uint64_t cookie, Nanos now) {
  Connection* c = impl_->find(id, State::kReqReceived);
  if (c == nullptr) return false;
  impl_->leave_backlog(*c);
  c->state = State::kRepSent;
  c->cookie = cookie;
  c->local_qpn = rep.local_qpn;
  rep.local_id = id.value;
  rep.remote_id = c->remote_id;
  rep.local_ca_guid = impl_->config.ca_guid;
  impl_->send_until_answered(*c, rep, now);
  return true;
}

bool Manager::reject(ConnectionId id, RejReason reason, std::span<const std::byte> private_data, Nanos now) {
  Connection* c = impl_->find(id);
  if (c == nullptr) return false;
  Rej rej;
  switch (c->state) {
    case State::kReqReceived: rej.answered = MessageAcked::kReq; break;
    case State::kRepReceived: rej.answered = MessageAcked::kRep; break;
    default: return false;
  }
  rej.local_id = id.value;
  rej.remote_id = c->remote_id;
  rej.reason = reason;
  fill(rej.private_data, private_data);
  impl_->send_once(c->peer, c->transaction, rej);
  // The REJ is kept: in TIMEWAIT a repeated REQ is rejected again, not taken for a new one.
  c->last_attribute = Attribute::kRej;
  c->last_modifier = 0;
  rej.emit(c->last);
  impl_->enter_timewait(*c, now);
  return true;
}

bool Manager::establish(ConnectionId id, std::span<const std::byte> private_data, Nanos) {
  Connection* c = impl_->find(id);
  if (c == nullptr) return false;
  if (c->state == State::kRepSent) {
    c->state = State::kEstablished;
    impl_->deadlines.clear(impl_->slot_of(*c));
    impl_->emit(EventType::kEstablished, *c);
    return true;
  }
  if (c->state != State::kRepReceived) return false;
  Rtu rtu;
  rtu.local_id = id.value;
  rtu.remote_id = c->remote_id;
  fill(rtu.private_data, private_data);
  c->state = State::kEstablished;
  impl_->deadlines.clear(impl_->slot_of(*c));
  c->last_attribute = Attribute::kRtu;
  c->last_modifier = 0;
  rtu.emit(c->last);
  impl_->send_again(*c);
  return true;
}

bool Manager::disconnect(ConnectionId id, Nanos now) {
  Connection* c = impl_->find(id);
  if (c == nullptr || (c->state != State::kEstablished && c->state != State::kRepSent)) return false;
  Dreq dreq;
  dreq.local_id = id.value;
  dreq.remote_id = c->remote_id;
  dreq.remote_qpn = c->remote_qpn;
  c->state = State::kDreqSent;
  c->transaction = impl_->next_transaction++;
  impl_->send_until_answered(*c, dreq, now);
  return true;
}

void Manager::abandon(ConnectionId id, Nanos now) {
  Connection* c = impl_->find(id);
  if (c == nullptr) return;
  c->abandoned = true;
  switch (c->state) {
    case State::kReqReceived:
    case State::kRepReceived: reject(id, RejReason::kConsumerDefined, {}, now); break;
    case State::kEstablished:
    case State::kRepSent: disconnect(id, now); break;
    case State::kReqSent:
      impl_->give_up(*c, MessageAcked::kOther);
      impl_->free(*c);
      break;
    case State::kSidrSent:
    case State::kSidrReceived: impl_->free(*c); break;
    default: break;
  }
}

std::optional<ConnectionId> Manager::sidr_request(const Peer& peer, SidrReq req, std::uint64_t cookie, Nanos now) {
  Connection* c = impl_->allocate(peer, cookie);
  if (c == nullptr) return std::nullopt;
  c->active = true;
  c->state = State::kSidrSent;
  c->transaction = impl_->next_transaction++;
  req.request_id = impl_->id_of(*c).value;
  impl_->send_until_answered(*c, req, now);
  return impl_->id_of(*c);
}

bool Manager::sidr_respond(ConnectionId id, SidrRep rep, Nanos) {
  Connection* c = impl_->find(id, State::kSidrReceived);
  if (c == nullptr) return false;
  rep.request_id = c->remote_id;
  impl_->send_once(c->peer, c->transaction, rep);
  impl_->close(*c);
  return true;
}

void Manager::Impl::enter_timewait(Connection& c, Nanos now) {
  leave_backlog(c);
  c.state = State::kTimewait;
  deadlines.set(slot_of(c), now + config.timewait);
}

void Manager::Impl::give_up(const Connection& c, MessageAcked answered) {
  Rej rej;
  rej.local_id = id_of(c).value;
  rej.remote_id = c.remote_id;
  rej.answered = answered;
  rej.reason = RejReason::kTimeout;
  rej.info_bytes = sizeof(config.ca_guid);
  kGuidInfo.write(rej.info.data(), config.ca_guid);
  send_once(c.peer, c.transaction, rej);
}

void Manager::Impl::timed_out(Connection& c, Nanos now) {
  if (c.state == State::kTimewait || c.state == State::kReqReceived || c.state == State::kSidrReceived) {
    // A request that its listener did not answer is dropped once the peer must have given up.
    close(c);
    return;
  }
  if (c.retries_left > 0) {
    --c.retries_left;
    ++counters.retries;
    send_again(c);
    deadlines.set(slot_of(c), now + c.timeout);
    return;
  }
  switch (c.state) {
    case State::kDreqSent:
      new_event(EventType::kDisconnected, c).timed_out = true;
      emit(scratch, c);
      enter_timewait(c, now);
      break;
    case State::kRepSent:
      give_up(c, MessageAcked::kRep);
      emit(EventType::kUnreachable, c);
      enter_timewait(c, now);
      break;
    default: emit(EventType::kUnreachable, c); close(c);
  }
}

void Manager::advance(Nanos now) {
  std::uint32_t slot;
  while (impl_->events.room() >= kEventsPerStep && impl_->deadlines.pop_due(now, slot)) {
    impl_->timed_out(impl_->table[slot], now);
  }
}

Nanos Manager::next_timeout() const { return impl_->deadlines.next(); }
bool Manager::take_message(Message& out) { return impl_->outgoing.pop(out); }
bool Manager::take_event(Event& out) { return impl_->events.pop(out); }

State Manager::state(ConnectionId id) const {
  const Connection* c = static_cast<const Impl&>(*impl_).find(id);
  return c == nullptr ? State::kFree : c->state;
}
std::uint32_t Manager::connections() const {
  return static_cast<std::uint32_t>(impl_->table.size() - impl_->free_count);
}
const ManagerCounters& Manager::counters() const { return impl_->counters; }

}  // namespace uroce::cm
