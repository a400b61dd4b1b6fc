// The run directory: sockets, locks and the sysfs-like tree. Other users must not be able to put files or symbolic
// links of their own in the places of these.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace uroce::daemon {

/// Makes the directory and those above it (0755; the user's own 0700). An error names the remedy: no right, or a
/// directory in which users other than root and the daemon's may replace files.
absl::Status make_run_dir(const std::string& path);

}  // namespace uroce::daemon
