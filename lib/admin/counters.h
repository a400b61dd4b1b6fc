// The counters of `urocectl stat` and of the page of counters (abi/counters_page.h).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "admin/query.h"
#include "base/counter_info.h"
#include "control/link/port_counters.h"

namespace uroce::admin {

struct CounterValue {
  std::string group, name;
  CounterKind kind = CounterKind::kTotal;
  std::uint64_t value = 0;
};

/// In the order of worker::each_counter().
std::vector<CounterValue> worker_counters(const control::worker_commands::SumCounters& sums);
/// Those that no single worker has. `sums`: their part that workers count.
std::vector<CounterValue> control_counters(const AdminContext& context,
                                           const control::worker_commands::SumCounters& sums);

/// The answer to "stat" (query.h).
nlohmann::ordered_json stat(const AdminContext& context);

/// What link faults and captures are set to (net::DeviceControls), and the number of verb rules.
nlohmann::ordered_json controls_json(const control::ControlState& state);

}  // namespace uroce::admin
