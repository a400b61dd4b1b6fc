#include "control/state/event_router.h"

#include "platform/record_socket.h"

namespace uroce::control {

void EventRouter::remove_qp(const Session& session, const QpObject& qp) {
  const auto it = qps_.find({qp.qpn.value, session.id, qp.cookie});
  if (it != qps_.end()) qps_.erase(it);
}

void EventRouter::send(Session& session, const uroce_async_event& event) {
  constexpr std::size_t kMaxOwed = 1024;
  if (!session.events.valid()) return;
  if (session.events_owed.empty()) {
    if (platform::send_record(session.events.get(), std::as_bytes(std::span(&event, 1))) != platform::Sent::kLater)
      return;
  }
  if (session.events_owed.size() < kMaxOwed) session.events_owed.push_back(event);
}

void EventRouter::forget(Session& session, std::uint64_t cookie) {
  std::erase_if(session.events_owed,
                [cookie](const uroce_async_event& event) { return event.object == 0 && event.cookie == cookie; });
}

void EventRouter::send_owed(Session& session) {
  auto& owed = session.events_owed;
  std::size_t sent = 0;
  while (sent < owed.size() &&
         platform::send_record(session.events.get(), std::as_bytes(std::span(&owed[sent], 1))) !=
             platform::Sent::kLater) {
    ++sent;
  }
  owed.erase(owed.begin(), owed.begin() + static_cast<std::ptrdiff_t>(sent));
}

namespace {

/// The element of an event of the port or the device, for which events of the objects have a cookie.
bool names_no_object(proto::AsyncEvent type, std::uint32_t& port) {
  using enum proto::AsyncEvent;
  switch (type) {
    case kPortActive:
    case kPortError:
    case kLidChange:
    case kPkeyChange:
    case kSmChange:
    case kClientReregister:
    case kGidChange: port = 1; return true;
    case kDeviceFatal: port = 0; return true;
    default: return false;
  }
}

}  // namespace

EventRouter::Targets& EventRouter::targets_of(proto::AsyncEvent type) {
  switch (type) {
    case proto::AsyncEvent::kCqError: return cqs_;
    case proto::AsyncEvent::kSrqError:
    case proto::AsyncEvent::kSrqLimitReached: return srqs_;
    default: return qps_;
  }
}

void EventRouter::deliver(std::span<const proto::Event> events) {
  for (const proto::Event& event : events) {
    if (event.type == proto::AsyncEvent::kDatagramsSent) continue;  // for the daemon
    const auto [first, end] = range_of(targets_of(event.type), event.object);
    for (auto it = first; it != end; ++it) {
      // The object may have been destroyed since, and its number given to another session.
      if (event.owner != kNoSession && it->session_id != event.owner) continue;
      std::uint32_t port = 0;
      const std::uint64_t cookie = names_no_object(event.type, port) ? 0 : it->cookie;
      send(*it->session, {static_cast<std::uint32_t>(event.type), port, cookie});
    }
  }
}

void EventRouter::broadcast(const Sessions& sessions, std::uint32_t event) {
  for (const auto& [id, session] : sessions) send(*session, {event, 1, 0});
}

}  // namespace uroce::control
