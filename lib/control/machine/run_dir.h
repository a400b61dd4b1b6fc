// The run directory: sockets, locks and the sysfs-like tree. Other users must not be able to put files or symbolic
// links of their own in the places of these.
#pragma once

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "platform/unique_fd.h"

namespace uroce::control {

/// Makes the directory and those above it (0755; the user's own 0700). An error names the remedy: no right, or a
/// directory in which users other than root and `user`, the daemon's, may replace files.
absl::Status make_run_dir(const std::string& path, uid_t user);

/// Opens a file of the run directory to read and write, or makes it (0600). Not one that another user has made, who
/// could lock, change or shorten it later: in a directory with the sticky bit anybody may make files.
absl::Status open_run_file(const std::string& path, UniqueFd& out);

}  // namespace uroce::control
