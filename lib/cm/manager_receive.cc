// Handlers of received messages. Nothing in a message is trusted: ids must name a connection in the right state
// whose peer has the address that the message came from.
#include <algorithm>

#include "cm/manager_impl.h"
#include "cm/manager_send.h"

namespace uroce::cm {
namespace {

/// A timeout as encoded in CM messages: 4.096 us * 2^exponent.
constexpr Nanos timeout_of(std::uint8_t exponent) { return Nanos{4096} << (exponent & 31); }

/// Less than a host needs to answer a MAD: with it all retries would go out before the first answer can arrive.
constexpr Nanos kShortestTimeout = kMillisecond;

}  // namespace

void Manager::receive(const Message& message, Nanos now) {
  const auto index = static_cast<unsigned>(static_cast<std::uint16_t>(message.attribute) - 0x10);
  if (index < 9) ++impl_->counters.received[index];
  if (impl_->events.room() < kEventsPerStep) return;
  if (message.class_version != wire::kMadCmClassVersion) return impl_->on_other_version(message);
  switch (message.attribute) {
    case Attribute::kReq: return impl_->on_req(message, now);
    case Attribute::kMra: return impl_->on_mra(message, now);
    case Attribute::kRej: return impl_->on_rej(message, now);
    case Attribute::kRep: return impl_->on_rep(message, now);
    case Attribute::kRtu: return impl_->on_rtu(message);
    case Attribute::kDreq: return impl_->on_dreq(message, now);
    case Attribute::kDrep: return impl_->on_drep(message, now);
    case Attribute::kSidrReq: return impl_->on_sidr_req(message, now);
    case Attribute::kSidrRep: return impl_->on_sidr_rep(message);
  }
  ++impl_->counters.unmatched;
}

/// A request of which only the first field, the id, is readable: a REJ stops the peer from retransmitting it.
void Manager::Impl::on_other_version(const Message& message) {
  ++counters.bad_version;
  if (message.attribute == Attribute::kReq) {
    refuse(message, Req::parse(message.bytes).local_id, MessageAcked::kReq, RejReason::kInvalidClassVersion);
  } else if (message.attribute == Attribute::kSidrReq) {
    SidrRep rep;
    rep.request_id = SidrReq::parse(message.bytes).request_id;
    rep.status = SidrStatus::kUnsupportedVersion;
    send_once(message.peer, message.transaction, rep);
  }
}

void Manager::Impl::on_req(const Message& message, Nanos now) {
  Req req = Req::parse(message.bytes);
  req.ece.options = message.modifier;
  if (Connection* known = by_remote_id(req.local_id, req.local_ca_guid, message.peer)) {
    return on_duplicate_req(*known, message, now);
  }
  // The same QP of the same peer in another connection: a stale connection (IBTA vol. 1, 12.9.8.3.1).
  if (Connection* old = by_remote_qpn(req.local_qpn, req.local_ca_guid, message.peer)) {
    ++counters.stale;
    refuse(message, req.local_id, MessageAcked::kReq, RejReason::kStaleConnection);
    if (old->state == State::kEstablished) {
      emit(EventType::kDisconnected, *old);
      enter_timewait(*old, now);
    }
    return;
  }
  Listener* listener = listener_of(req.service_id, message.peer.local);
  if (listener == nullptr) return refuse(message, req.local_id, MessageAcked::kReq, RejReason::kInvalidServiceId);
  // Beyond the backlog a REQ is dropped: the peer retransmits it.
  if (listener->waiting >= listener->backlog) {
    ++counters.backlog_full;
    return;
  }
  Connection* c = allocate(message.peer, listener->cookie);
  if (c == nullptr) return refuse(message, req.local_id, MessageAcked::kReq, RejReason::kNoResources);
  c->state = State::kReqReceived;
  c->transaction = message.transaction;
  c->timeout =
      std::min(std::max(timeout_of(req.local_response_timeout), kShortestTimeout), config.response_timeout);
  c->listener = static_cast<std::uint32_t>(listener - listeners.data());
  c->in_backlog = true;
  ++listener->waiting;
  set_remote(*c, req.local_id, req.local_ca_guid, req.local_qpn);
  deadlines.set(slot_of(*c), now + retry_period());
  Event& event = new_event(EventType::kRequest, *c);
  event.req = req;
  emit(event, *c);
}

/// The consumer has not answered yet: an MRA makes the peer wait instead of retransmitting. As the peer is still
/// waiting, the consumer's time starts again.
void Manager::Impl::send_mra(Connection& c, MessageAcked answered, Nanos now) {
  Mra mra;
  mra.local_id = id_of(c).value;
  mra.remote_id = c.remote_id;
  mra.answered = answered;
  send_once(c.peer, c.transaction, mra);
  deadlines.set(slot_of(c), now + retry_period());
}

void Manager::Impl::on_duplicate_req(Connection& c, const Message& message, Nanos now) {
  ++counters.duplicates;
  switch (c.state) {
    case State::kReqReceived: return send_mra(c, MessageAcked::kReq, now);
    case State::kRepSent: return send_again(c);
    case State::kTimewait:
      if (c.last_attribute == Attribute::kRej) return send_again(c);
      return refuse(message, c.remote_id, MessageAcked::kReq, RejReason::kStaleConnection);
    default: return;  // the REP and its RTU arrived: no answer is needed
  }
}

void Manager::Impl::on_mra(const Message& message, Nanos now) {
  const Mra mra = Mra::parse(message.bytes);
  Connection* c = find({mra.remote_id});
  if (c == nullptr || c->peer.remote != message.peer.remote) {
    ++counters.unmatched;
    return;
  }
  const bool expected = (c->state == State::kReqSent && mra.answered == MessageAcked::kReq) ||
                        (c->state == State::kRepSent && mra.answered == MessageAcked::kRep);
  if (!expected) {
    ++counters.out_of_state;
    return;
  }
  // The peer needs time: wait as long as it requests, but no longer than all our retries take.
  const Nanos wait = std::min(timeout_of(mra.service_timeout), config.response_timeout * config.max_retries);
  deadlines.set(slot_of(*c), now + c->timeout + wait);
}

Connection* Manager::Impl::rejected_by(const Rej& rej, const Peer& peer) {
  if (rej.reason == RejReason::kTimeout) {
    // A peer that gives up a request does not know our id, and may send 0.
    const auto guid = kGuidInfo.read<std::uint64_t>(rej.info.data());
    if (Connection* c = by_remote_id(rej.local_id, guid, peer)) return c;
  }
  Connection* c = find({rej.remote_id});
  return c != nullptr && c->peer.remote == peer.remote ? c : nullptr;
}

void Manager::Impl::on_rej(const Message& message, Nanos now) {
  const Rej rej = Rej::parse(message.bytes);
  Connection* c = rejected_by(rej, message.peer);
  if (c == nullptr) {
    ++counters.unmatched;
    return;
  }
  const bool expected = c->state == State::kReqSent || c->state == State::kRepSent ||
                        c->state == State::kRepReceived || c->state == State::kReqReceived ||
                        c->state == State::kEstablished;
  if (!expected) {
    ++counters.out_of_state;
    return;
  }
  Event& event = new_event(EventType::kRejected, *c);
  event.reject = rej;
  emit(event, *c);
  // No packet of this connection can be in flight unless a QP was running.
  if (c->state == State::kReqSent) return close(*c);
  enter_timewait(*c, now);
}

void Manager::Impl::on_rep(const Message& message, Nanos now) {
  Rep rep = Rep::parse(message.bytes);
  rep.ece.options = message.modifier;
  Connection* c = find({rep.remote_id});
  if (c == nullptr || !c->active || c->peer.remote != message.peer.remote) {
    ++counters.unmatched;
    return refuse(message, rep.local_id, MessageAcked::kRep, RejReason::kInvalidCommId);
  }
  if (c->state == State::kEstablished && c->remote_id == rep.local_id) {
    ++counters.duplicates;  // our RTU was lost
    return send_again(*c);
  }
  if (c->state == State::kRepReceived && c->remote_id == rep.local_id) {
    ++counters.duplicates;
    return send_mra(*c, MessageAcked::kRep, now);
  }
  if (c->state != State::kReqSent) {
    ++counters.out_of_state;
    return;
  }
  if (by_remote_qpn(rep.local_qpn, rep.local_ca_guid, message.peer) != nullptr) {
    ++counters.stale;
    Rej rej;
    rej.local_id = id_of(*c).value;
    rej.remote_id = rep.local_id;
    rej.answered = MessageAcked::kRep;
    rej.reason = RejReason::kStaleConnection;
    send_once(c->peer, c->transaction, rej);
    Event& event = new_event(EventType::kRejected, *c);
    event.reject = rej;
    emit(event, *c);
    return close(*c);
  }
  c->state = State::kRepReceived;
  set_remote(*c, rep.local_id, rep.local_ca_guid, rep.local_qpn);
  // From here on the peer retransmits; the consumer has until the peer gives up.
  deadlines.set(slot_of(*c), now + retry_period());
  c->retries_left = 0;
  Event& event = new_event(EventType::kResponse, *c);
  event.rep = rep;
  emit(event, *c);
}

void Manager::Impl::on_rtu(const Message& message) {
  const Rtu rtu = Rtu::parse(message.bytes);
  Connection* c = find({rtu.remote_id});
  if (c == nullptr || c->peer.remote != message.peer.remote || c->remote_id != rtu.local_id) {
    ++counters.unmatched;
    return;
  }
  if (c->state != State::kRepSent) {
    ++counters.duplicates;
    return;
  }
  c->state = State::kEstablished;
  deadlines.clear(slot_of(*c));
  emit(EventType::kEstablished, *c);
}

void Manager::Impl::on_dreq(const Message& message, Nanos now) {
  const Dreq dreq = Dreq::parse(message.bytes);
  Connection* c = find({dreq.remote_id});
  const bool ours = c != nullptr && c->peer.remote == message.peer.remote && c->remote_id == dreq.local_id;
  if (ours && c->local_qpn != dreq.remote_qpn) {  // not valid: the connection stays (IBTA vol. 1, 12.6.10)
    ++counters.unmatched;
    return;
  }
  // A DREP stops a peer that retransmits a DREQ for a connection that no longer exists.
  Drep drep;
  drep.local_id = dreq.remote_id;
  drep.remote_id = dreq.local_id;
  send_once(message.peer, message.transaction, drep);
  if (!ours) {
    ++counters.unmatched;
    return;
  }
  switch (c->state) {
    case State::kEstablished:
    case State::kRepSent:
    case State::kRepReceived:
    case State::kDreqSent:
      emit(EventType::kDisconnected, *c);
      enter_timewait(*c, now);
      break;
    case State::kTimewait: ++counters.duplicates; break;
    default: ++counters.out_of_state;
  }
}

void Manager::Impl::on_drep(const Message& message, Nanos now) {
  const Drep drep = Drep::parse(message.bytes);
  Connection* c = find({drep.remote_id});
  if (c == nullptr || c->peer.remote != message.peer.remote || c->remote_id != drep.local_id) {
    ++counters.unmatched;
    return;
  }
  if (c->state != State::kDreqSent) {
    ++counters.out_of_state;
    return;
  }
  emit(EventType::kDisconnected, *c);
  enter_timewait(*c, now);
}

void Manager::Impl::on_sidr_req(const Message& message, Nanos now) {
  const SidrReq req = SidrReq::parse(message.bytes);
  if (by_remote_id(req.request_id, 0, message.peer) != nullptr) {
    ++counters.duplicates;
    return;
  }
  Listener* listener = listener_of(req.service_id, message.peer.local);
  if (listener != nullptr && listener->waiting >= listener->backlog) {
    ++counters.backlog_full;
    return;
  }
  Connection* c = nullptr;
  if (listener != nullptr) c = allocate(message.peer, listener->cookie);
  if (c == nullptr) {
    SidrRep rep;
    rep.request_id = req.request_id;
    rep.status = listener == nullptr ? SidrStatus::kUnsupported : SidrStatus::kRejected;
    return send_once(message.peer, message.transaction, rep);
  }
  c->state = State::kSidrReceived;
  c->transaction = message.transaction;
  c->listener = static_cast<std::uint32_t>(listener - listeners.data());
  c->in_backlog = true;
  ++listener->waiting;
  set_remote(*c, req.request_id, 0, Qpn{0});
  deadlines.set(slot_of(*c), now + retry_period());
  Event& event = new_event(EventType::kSidrRequest, *c);
  event.sidr_req = req;
  emit(event, *c);
}

void Manager::Impl::on_sidr_rep(const Message& message) {
  SidrRep rep = SidrRep::parse(message.bytes);
  rep.ece.options = message.modifier;
  Connection* c = find({rep.request_id});
  if (c == nullptr || c->state != State::kSidrSent || c->peer.remote != message.peer.remote) {
    ++counters.unmatched;
    return;
  }
  Event& event = new_event(EventType::kSidrResponse, *c);
  event.sidr_rep = rep;
  emit(event, *c);
  close(*c);
}

}  // namespace uroce::cm
