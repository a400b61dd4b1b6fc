#include "worker/session_ports.h"

#include <atomic>

namespace uroce::worker {

bool SessionPorts::clients_are_yielding(Nanos now) {
  // A client whose counter has not moved for this long does something other than polling.
  constexpr Nanos kFresh = 100 * kMicrosecond;
  bool any = false;
  for (SessionPort* port : ports_) {
    const std::uint32_t polls = port->bells.polls();
    if (polls != port->polls) {
      port->polls = polls;
      port->polls_at = now;
    }
    any |= (polls & 1) != 0 && now - port->polls_at < kFresh;
  }
  return any;
}

Nanos SessionPorts::first_wake(Nanos slept) const {
  Nanos first = kNever;
  for (const SessionPort* port : ports_) {
    const Nanos woken = port->bells.woken_ns();
    if (woken > slept) first = std::min(first, woken);
  }
  return first;
}

void SessionPorts::attach(SessionPort& port) {
  ports_.push_back(&port);
  publish();
}

void SessionPorts::publish_sleep(std::uint32_t number) {
  line_ = (line_ & UROCE_STAMP_DOORBELLS) | number;
  publish();
}

void SessionPorts::want_stamps(bool wanted) {
  line_ = (line_ & ~UROCE_STAMP_DOORBELLS) | (wanted ? UROCE_STAMP_DOORBELLS : 0);
  publish();
}

void SessionPorts::publish() {
  for (SessionPort* port : ports_) {
    std::atomic_ref(port->line->sleeping).store(line_, std::memory_order_relaxed);
  }
}

}  // namespace uroce::worker
