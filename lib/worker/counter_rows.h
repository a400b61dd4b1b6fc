// All counters of a worker in one order: that of `urocectl stat` and of the page of counters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "proto/state/counter_help.h"
#include "wire/dump.h"
#include "worker/counter_help.h"

namespace uroce::worker {

inline constexpr std::size_t kWorkerValues =
    std::size(proto::kCounterHelp) + std::size(WorkerCounters().parse) + std::size(kWorkerHelp);

/// Calls `row(group, name, kind, value)` for each.
template <class Row>
void each_counter(const proto::Counters& transport, const WorkerCounters& worker, Row&& row) {
  for (const CounterInfo<proto::Counters>& each : proto::kCounterHelp) {
    row("transport", each.name, each.kind, transport.*each.value);
  }
  for (std::size_t i = 0; i < std::size(worker.parse); ++i) {
    row("parse", wire::parse_verdict_name(static_cast<wire::ParseVerdict>(i)), CounterKind::kTotal,
        worker.parse[i]);
  }
  for (const CounterInfo<WorkerCounters>& each : kWorkerHelp) {
    row("worker", each.name, each.kind, worker.*each.value);
  }
}

}  // namespace uroce::worker
