#include "admin/counters.h"

#include <iterator>
#include <nlohmann/json.hpp>

#include "cm/counter_help.h"
#include "net/device_counter_help.h"
#include "net/link_counter_help.h"
#include "platform/clock.h"
#include "worker/counter_help.h"
#include "worker/counter_rows.h"

namespace uroce::admin {

using control::ControlState;
using control::worker_commands::SumCounters;

namespace {

using Json = nlohmann::ordered_json;

class Rows {
 public:
  void add(std::string_view group, std::string_view name, std::uint64_t value,
           CounterKind kind = CounterKind::kTotal) {
    rows_.push_back({std::string(group), std::string(name), kind, value});
  }
  template <class Struct, std::size_t kRows>
  void add_all(std::string_view group, const CounterInfo<Struct> (&table)[kRows], const Struct& counters) {
    for (const CounterInfo<Struct>& row : table) add(group, row.name, counters.*row.value, row.kind);
  }
  std::vector<CounterValue> take() { return std::move(rows_); }

 private:
  std::vector<CounterValue> rows_;
};

void add_cm(const AdminContext& context, Rows& out) {
  const cm::Manager& manager = context.cm.manager();
  const cm::ManagerCounters& counters = manager.counters();
  out.add("cm", "connections", manager.connections());
  out.add_all("cm", worker::kGsiHelp, context.state.workers().gsi.counters());
  out.add("cm", "events_lost", context.cm.events_lost());
  for (std::size_t i = 0; i < std::size(cm::kMessageNames); ++i) {
    const std::string name(cm::kMessageNames[i]);
    out.add("cm", name + "_received", counters.received[i]);
    out.add("cm", name + "_sent", counters.sent[i]);
  }
  out.add_all("cm", cm::kManagerHelp, counters);
}

}  // namespace

std::vector<CounterValue> worker_counters(const SumCounters& sums) {
  Rows out;
  worker::each_counter(sums.transport, sums.worker, [&out](auto group, auto name, auto kind, std::uint64_t value) {
    out.add(group, name, value, kind);
  });
  return out.take();
}

std::vector<CounterValue> control_counters(const AdminContext& context, const SumCounters& sums) {
  Rows out;
  out.add_all("device", net::kDeviceHelp, sums.device);
  out.add_all("link", net::kLinkHelp, sums.link);
  const control::Rejections& rejections = context.state.rejections();
  for (std::size_t i = 0; i < std::size(control::kRejectionNames); ++i) {
    out.add("rejected", control::kRejectionNames[i], rejections.of(static_cast<control::Rejection>(i)));
  }
  add_cm(context, out);
  out.add("control", "longest_command", context.command_times.longest().second, CounterKind::kLongest);
  return out.take();
}

Json controls_json(const ControlState& state) {
  Json values = Json::object();
  if (state.config().controls == nullptr) return values;
  for (const auto& [name, value] : state.config().controls->describe()) values[name] = value;
  values["fault_verb_rules"] = std::to_string(state.verb_faults().rules().size());
  return values;
}

Json stat(const AdminContext& context) {
  SumCounters sums;
  context.state.on_all_workers(sums);
  const Nanos now = monotonic_now();
  Json out = Json::object();
  for (const auto& rows : {worker_counters(sums), control_counters(context, sums)}) {
    for (const CounterValue& row : rows) {
      out[row.group][stat_name(row.name, row.kind)] = stat_value(row.value, row.kind, now);
    }
  }
  out["control"]["longest_command"] = context.command_times.longest().first;
  out["controls"] = controls_json(context.state);
  return out;
}

}  // namespace uroce::admin
