// The connection table: ids, lookups by the peer's names, events and sending.
#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "cm/manager_impl.h"

namespace uroce::cm {
namespace {

std::uint64_t hash_of(const wire::Address& address) {
  std::uint64_t words[2];
  std::memcpy(words, address.bytes.data(), sizeof words);
  return base::mix(words[0]) ^ words[1];
}
std::uint64_t hash_of(std::uint32_t number, std::uint64_t guid, const Peer& peer) {
  return base::mix(hash_of(peer.remote) + guid) + number;
}

}  // namespace

std::string_view name(State state) {
  switch (state) {
    case State::kFree: return "free";
    case State::kReqSent: return "REQ sent";
    case State::kReqReceived: return "REQ received";
    case State::kRepSent: return "REP sent";
    case State::kRepReceived: return "REP received";
    case State::kEstablished: return "established";
    case State::kDreqSent: return "DREQ sent";
    case State::kDreqReceived: return "DREQ received";
    case State::kTimewait: return "timewait";
    case State::kSidrSent: return "SIDR_REQ sent";
    case State::kSidrReceived: return "SIDR_REQ received";
  }
  return "?";
}

Manager::Impl::Impl(const ManagerConfig& c)
    : config(c),
      table(std::bit_ceil(c.max_connections)),
      free_slots(table.size()),
      free_count(table.size()),
      by_remote(table.size()),
      by_qpn(table.size()),
      deadlines(table.size()),
      outgoing(c.max_pending_events),
      events(c.max_pending_events),
      next_transaction(base::mix(c.seed)),
      id_mask(static_cast<std::uint32_t>(base::mix(c.seed + 1))) {
  for (std::uint32_t i = 0; i < table.size(); ++i) free_slots[i] = i;
}

ConnectionId Manager::Impl::id_of(const Connection& c) const {
  return {(slot_of(c) + c.generation * static_cast<std::uint32_t>(table.size())) ^ id_mask};
}

const Connection* Manager::Impl::find(ConnectionId id) const {
  const Connection& c = table[(id.value ^ id_mask) & (table.size() - 1)];
  return c.state != State::kFree && id_of(c) == id ? &c : nullptr;
}
Connection* Manager::Impl::find(ConnectionId id) {
  return const_cast<Connection*>(static_cast<const Impl*>(this)->find(id));
}
Connection* Manager::Impl::find(ConnectionId id, State state) {
  Connection* c = find(id);
  return c != nullptr && c->state == state ? c : nullptr;
}

Connection* Manager::Impl::allocate(const Peer& peer, std::uint64_t cookie) {
  if (free_count == 0) {
    ++counters.table_full;
    return nullptr;
  }
  Connection& c = table[free_slots[free_first]];
  free_first = (free_first + 1) % free_slots.size();
  --free_count;
  const std::uint32_t generation = c.generation + 1;
  c = Connection{};
  c.generation = generation;
  c.peer = peer;
  c.cookie = cookie;
  c.timeout = config.response_timeout;
  return &c;
}

void Manager::Impl::set_remote(Connection& c, std::uint32_t remote_id, std::uint64_t guid, Qpn qpn) {
  forget_remote(c);
  c.remote_id = remote_id;
  c.remote_guid = guid;
  c.remote_qpn = qpn;
  c.remote_known = true;
  by_remote.insert(hash_of(remote_id, guid, c.peer), slot_of(c));
  by_qpn.insert(hash_of(qpn.value, guid, c.peer), slot_of(c));
}

void Manager::Impl::forget_remote(Connection& c) {
  if (!c.remote_known) return;
  by_remote.erase(hash_of(c.remote_id, c.remote_guid, c.peer), slot_of(c));
  by_qpn.erase(hash_of(c.remote_qpn.value, c.remote_guid, c.peer), slot_of(c));
  c.remote_known = false;
}

Connection* Manager::Impl::by_remote_id(std::uint32_t remote_id, std::uint64_t guid, const Peer& peer) {
  const std::uint32_t slot = by_remote.find(hash_of(remote_id, guid, peer), [&](std::uint32_t s) {
    return table[s].remote_id == remote_id && table[s].remote_guid == guid && table[s].peer.remote == peer.remote;
  });
  return slot == base::FixedIndex::kNone ? nullptr : &table[slot];
}

Connection* Manager::Impl::by_remote_qpn(Qpn qpn, std::uint64_t guid, const Peer& peer) {
  const std::uint32_t slot = by_qpn.find(hash_of(qpn.value, guid, peer), [&](std::uint32_t s) {
    return table[s].remote_qpn == qpn && table[s].remote_guid == guid && table[s].peer.remote == peer.remote;
  });
  return slot == base::FixedIndex::kNone ? nullptr : &table[slot];
}

void Manager::Impl::leave_backlog(Connection& c) {
  if (!c.in_backlog) return;
  c.in_backlog = false;
  Listener& listener = listeners[c.listener];
  --listener.waiting;
  free_if_unused(listener);
}

void Manager::Impl::close(Connection& c) {
  emit(EventType::kClosed, c);
  free(c);
}

void Manager::Impl::free(Connection& c) {
  leave_backlog(c);
  forget_remote(c);
  deadlines.clear(slot_of(c));
  c.state = State::kFree;
  free_slots[(free_first + free_count++) % free_slots.size()] = slot_of(c);
}

Listener* Manager::Impl::listener_of(std::uint64_t service, const wire::Address& local) {
  Listener* const found = find_listener(service, [&](const ListenScope& where) { return where.address == local; });
  if (found != nullptr) return found;
  return find_listener(service, [&](const ListenScope& where) { return where.serves(local); });
}

Listener& Manager::Impl::new_listener() {
  if (free_listeners.empty()) return listeners.emplace_back();
  Listener& listener = listeners[free_listeners.back()];
  free_listeners.pop_back();
  return listener;
}

void Manager::Impl::remove_listener(Listener& listener) {
  const auto [first, end] = by_service.equal_range(hash_of_service(listener.service));
  const auto it = std::find_if(first, end, [&](const auto& entry) { return entry.second == slot_of(listener); });
  if (it != end) by_service.erase(it);
  listener.used = false;
  free_if_unused(listener);
}

// The connections of a former listener that still await an answer count in `waiting`.
void Manager::Impl::free_if_unused(const Listener& listener) {
  if (!listener.used && listener.waiting == 0) free_listeners.push_back(slot_of(listener));
}

void Manager::Impl::queue(const Message& message) {
  // A full queue drops the message: all messages that matter are retransmitted.
  if (outgoing.push(message)) ++counters.sent[static_cast<std::uint16_t>(message.attribute) - 0x10];
}

void Manager::Impl::send_again(const Connection& c) {
  queue(Message{c.last_attribute, c.transaction, c.peer, c.last, c.last_modifier});
}

void Manager::Impl::refuse(const Message& request, std::uint32_t remote_id, MessageAcked answered,
                           RejReason reason) {
  Rej rej;
  rej.remote_id = remote_id;
  rej.answered = answered;
  rej.reason = reason;
  Message out{Attribute::kRej, request.transaction, request.peer, {}, 0};
  rej.emit(out.bytes);
  queue(out);
}

Event& Manager::Impl::new_event(EventType type, const Connection& c) {
  scratch.type = type;
  scratch.id = id_of(c);
  scratch.timed_out = false;
  scratch.cookie = c.cookie;
  scratch.peer = c.peer;
  return scratch;
}

void Manager::Impl::emit(const Event& event, const Connection& c) {
  if (!c.abandoned || event.type == EventType::kClosed) events.push(event);
}
void Manager::Impl::emit(EventType type, const Connection& c) { emit(new_event(type, c), c); }

}  // namespace uroce::cm
