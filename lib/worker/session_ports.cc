#include "worker/session_ports.h"

#include <atomic>

namespace uroce::daemon {

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

void SessionPorts::publish_sleep(std::uint32_t number) {
  for (SessionPort* port : ports_) {
    std::atomic_ref(port->line->sleeping).store(number, std::memory_order_relaxed);
  }
}

}  // namespace uroce::daemon
