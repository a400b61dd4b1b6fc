// The files that programs read under /sys and /dev in addition to libibverbs, written under the run directory:
// uroce-run mounts them at those places, and the shim points ibdev_path to them.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "control/link/port_counters.h"
#include "control/machine/port.h"

namespace uroce::control {

/// RUN_DIR/sys/devices/virtual/infiniband/NAME/... with a link in RUN_DIR/sys/class/infiniband, the same of
/// infiniband_verbs/uverbs-NAME, and RUN_DIR/dev/infiniband/uverbs-NAME (a link to /dev/null). Replaces what was
/// there. Only the daemon's user may write the files.
absl::Status write_sysfs_tree(const std::string& run_dir, const std::string& name, const Port& port);
/// Rewrites the port's state, rate and GIDs. Does nothing where there is no tree. After an error files that could
/// not be written have their old content.
absl::Status update_sysfs_tree(const std::string& run_dir, const std::string& name, const Port& port);
bool has_sysfs_tree(const std::string& run_dir, const std::string& name);
/// Writes the counters whose values differ. Does nothing where there is no tree.
absl::Status update_counter_files(const std::string& run_dir, const std::string& name, const CounterFiles& before,
                                  const CounterFiles& now);
void remove_sysfs_tree(const std::string& run_dir, const std::string& name);

}  // namespace uroce::control
