#include "proto/work/latency.h"

namespace uroce::proto {

void begin_latency(Qp& qp, Nanos rung) {
  if ((qp.requester.reports & kTimedReports) != 0) return;
  const std::uint32_t posted = qp.requester.ring.available();
  if (posted == 0) return;
  qp.latency = {rung, qp.requester.fetched + posted - 1};
  qp.requester.reports |= kTimedReports;
}

void end_latency(Context& context, Qp& qp) {
  const std::uint32_t ended = qp.requester.head - 1;
  const auto after = static_cast<std::int32_t>(ended - qp.latency.index);
  if (after < 0) return;
  qp.requester.reports &= static_cast<std::uint8_t>(~kTimedReports);
  // One that was flushed, as the QP entered SQE, is passed over.
  if (after > 0) return;
  const auto kind = static_cast<std::size_t>(qp.wqe(ended).kind);
  context.latencies[kind].record(time_since(qp.latency.since, context.now));
}

}  // namespace uroce::proto
