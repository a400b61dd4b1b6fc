// Counters of one worker. Only its own thread writes them; a command on that thread copies them for readers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.h"
#include "wire/packet.h"

namespace uroce::worker {

struct WorkerCounters {
  std::uint64_t parse[static_cast<std::size_t>(wire::ParseVerdict::kCount)] = {};
  std::uint64_t steps = 0, sleeps = 0;
  Nanos busy = 0;                   ///< in duty cycles that found work; of all workers of the thread
  Nanos longest_step = 0;           ///< since the worker started
  std::uint64_t stalls = 0;         ///< steps longer than DutyCycleTracker::kStall
  Nanos last_stall = 0;             ///< end of the last one, by the monotonic clock
  std::uint64_t bad_doorbells = 0;  ///< bits that belong to no QP of their session
  std::uint64_t steered_away = 0, steer_dropped = 0;
  std::uint64_t events_sent = 0, events_delayed = 0;   ///< completion events
  std::uint64_t async_events_lost = 0;                 ///< the conductor's queue was full
  std::uint64_t wrong_address = 0;                     ///< RoCE packets whose destination address is not ours
  std::uint64_t netdev_received = 0, netdev_sent = 0;  ///< frames that the kernel got, and that it sent
  std::uint64_t netdev_dropped = 0;                    ///< of either: no room, or too long
  std::uint64_t wrong_vlan = 0;                        ///< the address is ours, but in another VLAN or untagged
};

}  // namespace uroce::worker
