#include "admin/latency.h"

#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

namespace uroce::admin {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kOperationNames[] = {"",      "SEND",      "WRITE",   "READ",   "ATOMIC", "ATOMIC_WRITE",
                                                "FLUSH", "LOCAL_INV", "BIND_MW", "REG_MR", "TSO"};
static_assert(std::size(kOperationNames) == std::tuple_size_v<proto::OperationLatencies>);

struct CollectLatency {
  static constexpr std::string_view kName = "collect_latency";
  CollectedLatency& into;
  void describe(worker::ArgumentText&) const {}
  void run(worker::WorkerCore& worker) {
    const proto::OperationLatencies& of_worker = worker.transport().latencies();
    for (std::size_t i = 0; i < of_worker.size(); ++i) into.operations[i].add(of_worker[i]);
    into.workers[worker.config().index] = worker.latency();
  }
};

Json micros(Nanos duration) { return static_cast<double>(duration) / static_cast<double>(kMicrosecond); }

void add_row(const std::string& what, const base::LatencyHistogram& durations, Json& list) {
  const std::uint64_t count = durations.count();
  if (count == 0) return;
  list.push_back({{"what", what},
                  {"count", count},
                  {"mean_us", micros(durations.mean())},
                  {"p50_us", micros(durations.quantile(0.5))},
                  {"p90_us", micros(durations.quantile(0.9))},
                  {"p99_us", micros(durations.quantile(0.99))},
                  {"p99_9_us", micros(durations.quantile(0.999))}});
}

}  // namespace

std::string_view operation_name(std::size_t kind) { return kOperationNames[kind]; }

CollectedLatency collect_latency(const control::ControlState& state) {
  CollectedLatency all{{}, std::vector<worker::WorkerLatency>(state.worker_count())};
  state.on_all_workers(CollectLatency{all});
  return all;
}

Json list_latency(const control::ControlState& state, Page& page) {
  Json list = Json::array();
  if (!page.take_row(page.take_start())) return list;
  const CollectedLatency all = collect_latency(state);
  for (std::size_t i = 0; i < all.operations.size(); ++i) {
    add_row(std::string(operation_name(i)), all.operations[i], list);
  }
  for (std::size_t i = 0; i < all.workers.size(); ++i) {
    const std::string worker = " of worker " + std::to_string(i);
    add_row("wake-up" + worker, all.workers[i].wake_up, list);
    add_row("duty cycle" + worker, all.workers[i].duty_cycle, list);
  }
  return list;
}

}  // namespace uroce::admin
