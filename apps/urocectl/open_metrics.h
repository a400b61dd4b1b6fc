// The text format of OpenMetrics 1.0 (https://prometheus.io/docs/specs/om/open_metrics_spec/), made from the
// answers of daemons to "metrics".
#pragma once

#include <string>

#include "daemon_client.h"

namespace uroce::ctl {

/// `answers`: by device, which becomes the first label of each sample; null: the device does not answer. A family
/// is described as the first device does that has it; the samples of a device with another type are left out, as is
/// what is not a family or not a sample. Ends with "# EOF".
std::string open_metrics(const Json& answers);

}  // namespace uroce::ctl
