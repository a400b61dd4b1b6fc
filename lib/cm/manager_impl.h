// Manager's implementation: the connection table and the functions that handlers share. Included by manager*.cc
// only.
#pragma once

#include <unordered_map>
#include <vector>

#include "base/deadline_heap.h"
#include "base/fixed_index.h"
#include "cm/fields.h"
#include "cm/manager.h"

namespace uroce::cm {

/// The maximum number of events that one message or timeout causes. If the queue cannot hold them, the message or
/// timeout is not handled: the peer retransmits, and the timer stays due. So events are never lost.
inline constexpr std::size_t kEventsPerStep = 2;

/// The additional information of a REJ for a timeout: the sender's CA GUID.
inline constexpr Field kGuidInfo{0, 8};

struct Connection {
  State state = State::kFree;
  bool active = false;        ///< we sent the REQ
  bool abandoned = false;     ///< no consumer: only kClosed is emitted
  bool remote_known = false;  ///< present in by_remote
  std::uint8_t retries_left = 0;
  std::uint32_t generation = 0;
  std::uint32_t remote_id = 0;
  Qpn local_qpn, remote_qpn;
  std::uint64_t remote_guid = 0;
  std::uint64_t cookie = 0;
  std::uint64_t transaction = 0;
  Nanos timeout = 0;
  std::uint32_t listener = 0;
  bool in_backlog = false;
  Peer peer;
  Attribute last_attribute{};  ///< of the message that is sent again
  std::uint32_t last_modifier = 0;
  std::array<std::byte, kMessageBytes> last{};
};

struct Listener {
  std::uint64_t service = 0;
  ListenScope where;
  std::uint64_t cookie = 0;
  std::uint32_t backlog = 0, waiting = 0;
  bool used = false;
};

/// First in, first out, of fixed capacity.
template <class T>
class FixedQueue {
 public:
  explicit FixedQueue(std::size_t capacity) : items_(capacity) {}
  bool push(const T& item) {
    if (count_ == items_.size()) return false;
    items_[(first_ + count_++) % items_.size()] = item;
    return true;
  }
  bool pop(T& item) {
    if (count_ == 0) return false;
    item = items_[first_];
    first_ = (first_ + 1) % items_.size();
    --count_;
    return true;
  }
  std::size_t room() const { return items_.size() - count_; }

 private:
  std::vector<T> items_;
  std::size_t first_ = 0, count_ = 0;
};

struct Manager::Impl {
  explicit Impl(const ManagerConfig& config);

  // table.
  Connection* find(ConnectionId id);
  const Connection* find(ConnectionId id) const;
  Connection* find(ConnectionId id, State state);
  Connection* allocate(const Peer& peer, std::uint64_t cookie);
  ConnectionId id_of(const Connection& c) const;
  std::uint32_t slot_of(const Connection& c) const { return static_cast<std::uint32_t>(&c - table.data()); }
  void set_remote(Connection& c, std::uint32_t remote_id, std::uint64_t guid, Qpn qpn);
  void forget_remote(Connection& c);
  Connection* by_remote_id(std::uint32_t remote_id, std::uint64_t guid, const Peer& peer);
  Connection* by_remote_qpn(Qpn qpn, std::uint64_t guid, const Peer& peer);
  void close(Connection& c);
  void free(Connection& c);
  void leave_backlog(Connection& c);
  Listener* listener_of(std::uint64_t service, const wire::Address& local);
  std::uint64_t hash_of_service(std::uint64_t service) const { return base::mix(service + config.seed); }
  std::uint32_t slot_of(const Listener& l) const { return static_cast<std::uint32_t>(&l - listeners.data()); }
  /// One of the service for which `matches(ListenScope)` holds; nullptr: there is none.
  Listener* find_listener(std::uint64_t service, auto&& matches) {
    const auto [first, end] = by_service.equal_range(hash_of_service(service));
    for (auto it = first; it != end; ++it) {
      Listener& listener = listeners[it->second];
      if (listener.service == service && matches(listener.where)) return &listener;
    }
    return nullptr;
  }
  Listener& new_listener();
  void remove_listener(Listener& listener);
  void free_if_unused(const Listener& listener);

  // sending.
  template <class M>
  void send_once(const Peer& peer, std::uint64_t transaction, const M& message);
  template <class M>
  void send_until_answered(Connection& c, const M& message, Nanos now);
  void send_again(const Connection& c);
  void queue(const Message& message);
  Connection* rejected_by(const Rej& rej, const Peer& peer);
  void refuse(const Message& request, std::uint32_t remote_id, MessageAcked answered, RejReason reason);

  // events.
  Event& new_event(EventType type, const Connection& c);
  void emit(const Event& event, const Connection& c);
  void emit(EventType type, const Connection& c);

  // transitions (manager.cc) and handlers (manager_receive.cc).
  /// How long a peer retransmits, with a margin.
  Nanos retry_period() const { return config.response_timeout * (config.max_retries + 2u); }
  void enter_timewait(Connection& c, Nanos now);
  void timed_out(Connection& c, Nanos now);
  /// REJ for a timeout: identifies us by CA GUID and id, as the peer's id may be unknown (IBTA vol. 1, 12.6.7).
  void give_up(const Connection& c, MessageAcked answered);
  void on_other_version(const Message& message);
  void on_req(const Message& message, Nanos now);
  void on_duplicate_req(Connection& c, const Message& message, Nanos now);
  void send_mra(Connection& c, MessageAcked answered, Nanos now);
  void on_mra(const Message& message, Nanos now);
  void on_rej(const Message& message, Nanos now);
  void on_rep(const Message& message, Nanos now);
  void on_rtu(const Message& message);
  void on_dreq(const Message& message, Nanos now);
  void on_drep(const Message& message, Nanos now);
  void on_sidr_req(const Message& message, Nanos now);
  void on_sidr_rep(const Message& message);

  ManagerConfig config;
  std::vector<Connection> table;
  std::vector<std::uint32_t> free_slots;  ///< a ring: the slot that has been free longest is used next
  std::size_t free_first = 0, free_count = 0;
  std::vector<Listener> listeners;
  std::vector<std::uint32_t> free_listeners;  ///< slots
  std::unordered_multimap<std::uint64_t, std::uint32_t>
      by_service;  ///< slots of those in use, by hash_of_service()
  base::FixedIndex by_remote, by_qpn;
  base::DeadlineHeap deadlines;
  FixedQueue<Message> outgoing;
  FixedQueue<Event> events;
  ManagerCounters counters;
  std::uint64_t next_transaction;
  std::uint32_t id_mask;
  Event scratch;
};

}  // namespace uroce::cm
