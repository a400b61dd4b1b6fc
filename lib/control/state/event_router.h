// Asynchronous events (ibv_get_async_event(3)) on their way to the clients: workers name an object by its number,
// and the router knows which sessions hold it and the cookie that each of them gave it.
//
// Call contract. The control thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "control/session/session.h"
#include "control/state/state.h"
#include "proto/transport.h"

namespace uroce::control {

/// Owner of objects that sessions share (XRC target QPs); no session has this number.
inline constexpr std::uint64_t kNoSession = 0;

class EventRouter {
 public:
  void add_qp(Qpn qpn, Session& session, std::uint64_t cookie) { add(qps_, qpn.value, session, cookie); }
  void add_cq(CqId cq, Session& session, std::uint64_t cookie) { add(cqs_, cq.value, session, cookie); }
  void add_srq(SrqId srq, Session& session, std::uint64_t cookie) { add(srqs_, srq.value, session, cookie); }
  /// An XRC target QP has one entry for each user: removes the entry of this session and cookie.
  void remove_qp(const Session& session, const QpObject& qp);
  void remove_cq(CqId cq) { remove_all(cqs_, cq.value); }
  void remove_srq(SrqId srq) { remove_all(srqs_, srq.value); }

  /// Sends the event on the session's event channel, or keeps it while the channel is full. If 1024 are kept
  /// already, the event is lost.
  void send(Session& session, const uroce_async_event& event);
  /// Drops the kept events of an object that was destroyed.
  static void forget(Session& session, std::uint64_t cookie);
  /// Sends kept events until the channel is full.
  void send_owed(Session& session);
  /// To every client that holds the event's object.
  void deliver(std::span<const proto::Event> events);
  /// A port event, to all clients.
  void broadcast(const Sessions& sessions, std::uint32_t event);

  // Objects that events can name.
  std::size_t qps() const { return qps_.size(); }
  std::size_t cqs() const { return cqs_.size(); }
  std::size_t srqs() const { return srqs_.size(); }

 private:
  struct Target {
    std::uint32_t number = 0;
    std::uint64_t session_id = 0;
    std::uint64_t cookie = 0;
    Session* session = nullptr;
    auto key() const { return std::tuple(number, session_id, cookie); }
    bool operator<(const Target& other) const { return key() < other.key(); }
  };
  /// Ordered: a target QP may have thousands of users, of which each is found without looking at the others.
  using Targets = std::multiset<Target>;

  static void add(Targets& targets, std::uint32_t number, Session& session, std::uint64_t cookie) {
    targets.insert({number, session.id, cookie, &session});
  }
  static auto range_of(const Targets& targets, std::uint32_t number) {
    return std::pair(targets.lower_bound({number}), targets.lower_bound({number + 1}));
  }
  static void remove_all(Targets& targets, std::uint32_t number) {
    const auto [first, end] = range_of(targets, number);
    targets.erase(first, end);
  }
  Targets& targets_of(proto::AsyncEvent type);

  Targets qps_, cqs_, srqs_;
};

}  // namespace uroce::control
