#include "admin/metrics.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "abi/control.h"
#include "admin/latency.h"
#include "admin/page.h"
#include "admin/qp_names.h"
#include "base/version.h"
#include "cm/counter_help.h"
#include "control/link/port_counters.h"
#include "control/machine/poller_census.h"
#include "net/device_counter_help.h"
#include "net/link_counter_help.h"
#include "platform/clock.h"
#include "proto/state/counter_help.h"
#include "wire/dump.h"
#include "worker/counter_help.h"

namespace uroce::admin {

using control::ControlState;
using control::QpObject;
using worker::WorkerCounters;

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kCounter = "counter", kGauge = "gauge", kHistogram = "histogram";

double seconds(Nanos duration) { return static_cast<double>(duration) / static_cast<double>(kSecond); }

/// OpenMetrics 1.0: a name ends in its unit.
std::string_view unit_of(std::string_view name) {
  for (const std::string_view unit : {"bytes_per_second", "bytes", "seconds"}) {
    if (name.ends_with(unit)) return unit;
  }
  return {};
}

struct About {
  std::string name;  ///< without "uroce_" and "_total"
  std::string_view type, help;
  std::string stat = {};         ///< where `urocectl stat` has it
  std::string_view labels = {};  ///< names of the samples' labels: "type,state"
};

Json sample(const Json& labels, const Json& value) { return {{"labels", labels}, {"value", value}}; }

class Families {
 public:
  /// `values`: what the values of the last label mean.
  void add(const About& about, const Json& samples, const Json& values = {}) { put(about, samples, values); }
  /// Its samples have the numbers of this page.
  void add_part(const About& about, const Json& samples) { put(about, samples, {})["sum"] = true; }
  void one(const About& about, const Json& value) { add(about, Json::array({sample(Json::object(), value)})); }
  template <class Struct, std::size_t kRows>
  void totals(const std::string& group, const CounterInfo<Struct> (&table)[kRows], const Struct& counters) {
    for (const CounterInfo<Struct>& row : table) {
      About about{group, kCounter, row.help, group};
      about.name.append("_").append(row.name);
      about.stat.append(".").append(row.name);
      one(about, counters.*row.value);
    }
  }
  Json take() { return std::move(families_); }

 private:
  Json& put(const About& about, const Json& samples, const Json& values) {
    Json family = {
        {"name", "uroce_" + about.name}, {"type", about.type}, {"unit", unit_of(about.name)}, {"help", about.help},
        {"labels", about.labels},        {"stat", about.stat}, {"samples", samples}};
    if (!values.is_null()) family["values"] = values;
    families_.push_back(std::move(family));
    return families_.back();
  }
  Json families_ = Json::array();
};

// ---------------------------------------------------------------- workers

struct CollectCounters {
  static constexpr std::string_view kName = "collect_counters";
  control::worker_commands::SumCounters sums;
  std::vector<WorkerCounters> workers;  ///< by index
  void describe(worker::ArgumentText&) const {}
  void run(worker::WorkerCore& core) {
    sums.run(core);
    workers[core.config().index] = core.counters();
  }
};

void add_workers(const std::vector<WorkerCounters>& workers, Families& out) {
  const Nanos now = monotonic_now();
  for (const CounterInfo<WorkerCounters>& row : worker::kWorkerHelp) {
    Json samples = Json::array();
    for (std::size_t i = 0; i < workers.size(); ++i) {
      const std::uint64_t value = workers[i].*row.value;
      const Json labels = {{"worker", std::to_string(i)}};
      if (row.kind == CounterKind::kTotal) samples.push_back(sample(labels, value));
      if (row.kind == CounterKind::kDuration || row.kind == CounterKind::kLongest) {
        samples.push_back(sample(labels, seconds(value)));
      }
      // The worker may have written it after `now` was read.
      if (row.kind == CounterKind::kLast && value != 0) {
        samples.push_back(sample(labels, seconds(now - std::min(now, value))));
      }
    }
    const std::string name = "worker_" + std::string(row.name);
    const std::string stat = "worker." + stat_name(row.name, row.kind);
    switch (row.kind) {
      case CounterKind::kTotal: out.add({name, kCounter, row.help, stat, "worker"}, samples); break;
      case CounterKind::kDuration: out.add({name + "_seconds", kCounter, row.help, stat, "worker"}, samples); break;
      case CounterKind::kLongest: out.add({name + "_seconds", kGauge, row.help, stat, "worker"}, samples); break;
      case CounterKind::kLast: out.add({name + "_age_seconds", kGauge, row.help, stat, "worker"}, samples); break;
    }
  }
}

void add_frames(const WorkerCounters& sums, Families& out) {
  Json samples = Json::array(), values = Json::object();
  for (std::size_t i = 0; i < std::size(sums.parse); ++i) {
    const std::string name(wire::parse_verdict_name(static_cast<wire::ParseVerdict>(i)));
    samples.push_back(sample({{"verdict", name}}, sums.parse[i]));
    values[name] = worker::kParseHelp[i];
  }
  out.add({"parsed_frames", kCounter, "Frames that workers have parsed, by the result.", "parse.*", "verdict"},
          samples, values);
}

// ---------------------------------------------------------------- latencies

/// Powers of two from 512 ns to 8.6 s. None of a histogram without durations.
void add_histogram(const Json& labels, const base::LatencyHistogram& durations, Json& samples) {
  const std::uint64_t count = durations.count();
  if (count == 0) return;
  Json buckets = Json::array();
  for (unsigned power = 9; power <= 33; ++power) {
    buckets.push_back({seconds(Nanos{1} << power), durations.shorter_than_power(power)});
  }
  samples.push_back(
      {{"labels", labels}, {"buckets", buckets}, {"count", count}, {"sum", seconds(durations.sum())}});
}

void add_latencies(const CollectedLatency& all, Families& out) {
  Json operations = Json::array(), wake_ups = operations, cycles = operations;
  for (std::size_t i = 0; i < all.operations.size(); ++i) {
    add_histogram({{"operation", operation_name(i)}}, all.operations[i], operations);
  }
  for (std::size_t i = 0; i < all.workers.size(); ++i) {
    const Json labels = {{"worker", std::to_string(i)}};
    add_histogram(labels, all.workers[i].wake_up, wake_ups);
    add_histogram(labels, all.workers[i].duty_cycle, cycles);
  }
  out.add({"work_request_seconds", kHistogram,
           "Time from the doorbell of a send work request to its completion, of one of each QP at a time, while "
           "latency is measured.",
           "", "operation"},
          operations);
  out.add({"worker_wake_up_seconds", kHistogram,
           "Time from a program's wake-up of a sleeping worker until that runs, while latency is measured.", "",
           "worker"},
          wake_ups);
  out.add({"worker_duty_cycle_seconds", kHistogram,
           "Duration of duty cycles that found work, of all workers of the thread, while latency is measured.", "",
           "worker"},
          cycles);
}

// ---------------------------------------------------------------- objects

/// QPs by type and state. The workers own the states.
struct CountQps {
  static constexpr std::string_view kName = "count_qps";
  std::span<const QpObject* const> qps;
  std::map<std::pair<std::string_view, std::string_view>, std::uint64_t>& counts;
  void describe(worker::ArgumentText& text) const { text.add("count", qps.size()); }
  void run(worker::WorkerCore& worker) {
    for (const QpObject* const qp : qps) {
      proto::QpSnapshot now;
      if (qp->worker != worker.config().index || !worker.transport().query(qp->index, now)) continue;
      if (const auto found = counts.find({type_name(qp->type), state_name(now.state)}); found != counts.end()) {
        ++found->second;
      }
    }
  }
};

void add_qps(const ControlState& state, std::span<const QpObject* const> qps, Families& out) {
  std::map<std::pair<std::string_view, std::string_view>, std::uint64_t> counts;
  for (const char* const type : kQpTypeNames) {
    for (const char* const name : kQpStateNames) counts[{type, name}] = 0;
  }
  if (!qps.empty()) state.on_all_workers(CountQps{qps, counts});
  Json samples = Json::array();
  for (const auto& [key, count] : counts)
    samples.push_back(sample({{"type", key.first}, {"state", key.second}}, count));
  out.add_part({"qps", kGauge, "QPs by type and state.", "", "type,state"}, samples);
}

/// The objects of the sessions of a page. One that has more QPs than the page counts is continued on the next one.
void add_objects(const ControlState& state, Page& page, Families& out) {
  constexpr const char* kKinds[] = {"ahs", "channels", "cm_ids", "cqs",  "flows",
                                    "mrs", "mws",      "pds",    "srqs", "xrcds"};
  std::array<std::uint64_t, std::size(kKinds)> counts{};
  std::uint64_t sessions = 0, shared_bytes = 0, mappings = 0;
  std::vector<const QpObject*> qps;
  const Cursor start = page.take_start();
  for (auto it = state.sessions().lower_bound(start.at); it != state.sessions().end() && !page.ended(); ++it) {
    const auto& [id, s] = *it;
    const std::uint64_t first = id == start.at ? start.handle : 0;  // 0: the session is not counted yet
    if (!page.take_session({id, first})) break;
    if (!s->hello_done || !page.viewer.sees(*s, 1) || first > UINT32_MAX) continue;
    for (auto qp = s->qps.from(static_cast<std::uint32_t>(first)); qp != s->qps.end(); ++qp) {
      if (!page.take_row({id, qp->first})) break;
      qps.push_back(qp->second.get());
    }
    if (first != 0) continue;
    const std::size_t sizes[] = {s->ahs.size(),   s->channels.size(), s->cm.ids.size(), s->cqs.size(),
                                 s->flows.size(), s->mrs.size(),      s->mws.size(),    s->pds.size(),
                                 s->srqs.size(),  s->xrcds.size()};
    static_assert(std::size(sizes) == std::size(kKinds));
    for (std::size_t i = 0; i < std::size(sizes); ++i) counts[i] += sizes[i];
    ++sessions;
    shared_bytes += s->arena.total_bytes();
    mappings += s->memory.mappings();
  }
  const auto one = [](std::uint64_t value) { return Json::array({sample(Json::object(), value)}); };
  out.add_part({"sessions", kGauge, "Device contexts that programs have open."}, one(sessions));
  Json samples = Json::array();
  for (std::size_t i = 0; i < counts.size(); ++i) samples.push_back(sample({{"kind", kKinds[i]}}, counts[i]));
  out.add_part({"objects", kGauge, "Objects of programs by kind, without QPs.", "", "kind"}, samples);
  add_qps(state, qps, out);
  out.add_part({"shared_memory_bytes", kGauge, "Memory of queues that the daemon shares with programs."},
               one(shared_bytes));
  out.add_part({"memory_mappings", kGauge, "Mappings of programs' memory in the daemon."}, one(mappings));
}

// ---------------------------------------------------------------- users

/// "registered_bytes" is an amount of memory, "qps" a number of objects.
bool counts_bytes(const control::Resource& resource) { return unit_of(resource.name) == "bytes"; }

void add_users(const ControlState& state, Page& page, Families& out) {
  const control::Quotas& quotas = state.quotas();
  Json objects = Json::array(), object_limits = objects, memory = objects, memory_limits = objects,
       refusals = objects, weights = objects, rates = objects;
  const bool all = page.viewer.sees_all();
  const auto& users = quotas.users();
  const auto first = static_cast<uid_t>(std::min<std::uint64_t>(page.take_start().at, UINT32_MAX));
  for (auto it = all ? users.lower_bound(first) : users.find(page.viewer.user()); it != users.end();
       it = all ? std::next(it) : users.end()) {
    const auto& [user, account] = *it;
    if (!page.take_row({user, 0})) break;
    const Json only_user = {{"user", std::to_string(user)}};
    for (const control::Resource& resource : control::kResources) {
      Json labels = only_user;
      labels["resource"] = resource.name;
      const std::uint64_t limit = quotas.limit(resource, account.privileged);
      (counts_bytes(resource) ? memory : objects).push_back(sample(labels, account.usage.*resource.amount));
      (counts_bytes(resource) ? memory_limits : object_limits).push_back(sample(labels, limit));
    }
    refusals.push_back(sample(only_user, account.refusals));
    if (const auto grant = state.grants().find(user); grant != state.grants().end()) {
      weights.push_back(sample(only_user, grant->second.weight));
      const std::uint64_t kbps = grant->second.limit.kbps;
      if (kbps != 0) rates.push_back(sample(only_user, kbps * 1000 / 8));
    }
  }
  out.add({"user_objects", kGauge, "What a user holds, by resource.", "", "user,resource"}, objects);
  out.add({"user_objects_limit", kGauge, "What a user may hold, by resource.", "", "user,resource"}, object_limits);
  out.add({"user_memory_bytes", kGauge, "Memory that a user holds, by resource.", "", "user,resource"}, memory);
  out.add({"user_memory_limit_bytes", kGauge, "Memory that a user may hold, by resource.", "", "user,resource"},
          memory_limits);
  out.add({"user_refusals", kCounter, "Requests of a user that exceeded a limit, since it began to hold anything.",
           "", "user"},
          refusals);
  out.add({"user_weight", kGauge, "Weight of a user's turns; 1 without a sample.", "", "user"}, weights);
  out.add({"user_rate_limit_bytes_per_second", kGauge, "Rate limit of a user; none without a sample.", "", "user"},
          rates);
}

// ---------------------------------------------------------------- the device, connections, rejections

void add_device(const ControlState& state, Families& out) {
  const control::Port& port = state.port();
  std::size_t gids = 0;
  for (std::size_t i = 0; i < port.gids().size(); ++i) gids += port.gids().at(i).has_value();
  out.add(
      {"build_info", kGauge, "Version of the daemon and of its protocol with the libraries.", "", "version,abi"},
      Json::array({sample({{"version", UROCE_VERSION}, {"abi", std::to_string(UROCE_ABI_VERSION)}}, 1)}));
  out.add({"device_info", kGauge, "The port of the device.", "", "port"},
          Json::array({sample({{"port", state.config().port}}, 1)}));
  out.one({"uptime_seconds", kGauge, "Time since the daemon's start."}, seconds(monotonic_now() - state.started()));
  out.one({"port_up", kGauge, "1 if the port is ACTIVE, 0 if it is DOWN."}, port.up() ? 1 : 0);
  out.one({"port_mtu_bytes", kGauge, "MTU of the link."}, port.link_mtu());
  out.one({"port_active_mtu_bytes", kGauge, "Largest RDMA payload of a packet."}, port.active_mtu_bytes());
  out.one({"port_gids", kGauge, "Entries of the GID table."}, gids);
  out.one({"workers", kGauge, "Threads that move data."}, state.worker_count());
  out.one({"cores", kGauge, "CPU cores that the daemon may use."}, control::usable_cores());
  out.one({"pollers_exceed_cores", kGauge, "1 if more threads poll than there are cores."},
          state.workers().few_cores.load() ? 1 : 0);
}

void add_connections(const ControlState& state, const cm_service::CmService& cm, Families& out) {
  const cm::ManagerCounters& counters = cm.manager().counters();
  out.one({"cm_connections", kGauge, "Connections of the connection manager.", "cm.connections"},
          cm.manager().connections());
  out.totals("cm", worker::kGsiHelp, state.workers().gsi.counters());
  out.one({"cm_events_lost", kCounter, "Events that a program did not get because its channel was full.",
           "cm.events_lost"},
          cm.events_lost());
  Json received = Json::array(), sent = Json::array();
  for (std::size_t i = 0; i < std::size(cm::kMessageNames); ++i) {
    received.push_back(sample({{"message", cm::kMessageNames[i]}}, counters.received[i]));
    sent.push_back(sample({{"message", cm::kMessageNames[i]}}, counters.sent[i]));
  }
  out.add(
      {"cm_messages_received", kCounter, "Connection management messages received.", "cm.*_received", "message"},
      received);
  out.add({"cm_messages_sent", kCounter, "Connection management messages sent.", "cm.*_sent", "message"}, sent);
  out.totals("cm", cm::kManagerHelp, counters);
}

void add_command_times(const control::CommandTimes& times, Families& out) {
  Json samples = Json::array();
  for (const auto& [name, longest] : times.all()) samples.push_back(sample({{"command", name}}, seconds(longest)));
  out.add({"control_longest_command_seconds", kGauge,
           "Longest time that a command, or a slice of it, has kept the control thread since its start.",
           "control.longest_command_us", "command"},
          samples);
}

void add_rejections(const control::Rejections& rejections, Families& out) {
  Json samples = Json::array(), values = Json::object();
  for (std::size_t i = 0; i < std::size(control::kRejectionNames); ++i) {
    const auto reason = static_cast<control::Rejection>(i);
    samples.push_back(sample({{"reason", control::kRejectionNames[i]}}, rejections.of(reason)));
    values[std::string(control::kRejectionNames[i])] = control::default_text(reason);
  }
  out.add({"rejected_requests", kCounter, "Requests of programs that the daemon refused, by reason.", "rejected.*",
           "reason"},
          samples, values);
}

void add_daemon(const ControlState& state, const cm_service::CmService& cm,
                const control::CommandTimes& command_times, Families& out) {
  CollectCounters collected{{}, std::vector<WorkerCounters>(state.worker_count())};
  state.on_all_workers(collected);
  add_device(state, out);
  add_rejections(state.rejections(), out);
  add_command_times(command_times, out);
  add_workers(collected.workers, out);
  out.totals("device", net::kDeviceHelp, collected.sums.device);
  out.totals("link", net::kLinkHelp, collected.sums.link);
  add_latencies(collect_latency(state), out);
  add_frames(collected.sums.worker, out);
  out.totals("transport", proto::kCounterHelp, collected.sums.transport);
  add_connections(state, cm, out);
}

// A page takes 1 to 2 ms: what it has for each user is long.
constexpr std::size_t kQpsOfPage = 256, kUsersOfPage = 4;

}  // namespace

nlohmann::ordered_json metrics_page(const ControlState& state, const cm_service::CmService& cm,
                                    const control::CommandTimes& command_times, Viewer& viewer,
                                    const Json& request) {
  constexpr std::string_view kObjects = "objects", kUsers = "users";
  std::string kind;
  Cursor start;
  const bool valid = read_start(request, kind, start);
  Families out;
  Json next;
  if (!takes_pages(request)) return {{"error", kTakesNoPages}};
  if (valid && kind == kObjects) {
    Page page(viewer, start, kQpsOfPage);
    add_objects(state, page, out);
    next = page.ended() ? next_page(kObjects, page.next()) : next_page(kUsers, {});
  } else if (valid && kind == kUsers) {
    Page page(viewer, start, kUsersOfPage);
    add_users(state, page, out);
    if (page.ended()) next = next_page(kUsers, page.next());
  } else if (valid && kind.empty()) {
    add_daemon(state, cm, command_times, out);
    next = next_page(kObjects, {});
  } else {
    return {{"error", "\"from\" of metrics must be the \"next\" of the page before"}};
  }
  Json answer = {{"families", out.take()}};
  if (!next.is_null()) answer["next"] = std::move(next);
  return answer;
}

}  // namespace uroce::admin
