// Asynchronous events (ibv_get_async_event(3)) on their way to the clients: workers name an object by its number,
// and the router knows which sessions hold it and the cookie that each of them gave it.
//
// Call contract. The control thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>

#include "control/session.h"
#include "control/state.h"
#include "proto/transport.h"

namespace uroce::daemon {

/// Owner of objects that sessions share (XRC target QPs); no session has this number.
inline constexpr std::uint64_t kNoSession = 0;

class EventRouter {
 public:
  void add_qp(Qpn qpn, Session& session, std::uint64_t cookie) { add(qps_, qpn.value, session, cookie); }
  void add_cq(CqId cq, Session& session, std::uint64_t cookie) { add(cqs_, cq.value, session, cookie); }
  void add_srq(SrqId srq, Session& session, std::uint64_t cookie) { add(srqs_, srq.value, session, cookie); }
  /// An XRC target QP has one entry for each user: removes the entry of this session and cookie.
  void remove_qp(const Session& session, const QpObject& qp);
  void remove_cq(CqId cq) { cqs_.erase(cq.value); }
  void remove_srq(SrqId srq) { srqs_.erase(srq.value); }

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
    Session* session = nullptr;
    std::uint64_t cookie = 0;
  };
  using Targets = std::unordered_multimap<std::uint32_t, Target>;

  static void add(Targets& targets, std::uint32_t number, Session& session, std::uint64_t cookie) {
    targets.emplace(number, Target{&session, cookie});
  }
  Targets& targets_of(proto::AsyncEvent type);

  Targets qps_, cqs_, srqs_;
};

}  // namespace uroce::daemon
