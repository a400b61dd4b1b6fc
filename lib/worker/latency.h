// How long things take in a worker, while that is measured (`urocectl latency on`). On the worker's thread only; a
// command on that thread copies it for readers. Work requests are measured by proto::Transport.
#pragma once

#include "base/latency_histogram.h"

namespace uroce::worker {

struct WorkerLatency {
  bool on = false;
  base::LatencyHistogram wake_up;     ///< from a program's write to the worker's eventfd until the worker runs
  base::LatencyHistogram duty_cycle;  ///< of duty cycles that found work, of all workers of the thread
};

}  // namespace uroce::worker
