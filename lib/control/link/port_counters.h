// Counters of all workers together, and those that programs read as files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "control/state/worker_commands.h"
#include "net/device.h"
#include "net/link_stack.h"
#include "proto/state/counters.h"
#include "worker/counters.h"

namespace uroce::control {

namespace worker_commands {

/// Adds what one worker has counted.
struct SumCounters {
  static constexpr std::string_view kName = "sum_counters";
  proto::Counters transport{};
  worker::WorkerCounters worker;
  net::DeviceCounters device;
  net::LinkCounters link;  ///< of the link worker
  void describe(worker::ArgumentText&) const {}
  void run(worker::WorkerCore& core);
};

}  // namespace worker_commands

/// Values by path below ports/1: "counters/port_xmit_data".
using CounterFiles = std::map<std::string, std::uint64_t>;

/// counters/ has the names of the kernel's ib_core, hw_counters/ those of rxe. `times_down`: how often the link has
/// been lost.
CounterFiles counter_files(const worker_commands::SumCounters& sums, std::uint64_t times_down);

}  // namespace uroce::control
