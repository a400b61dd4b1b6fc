// What programs look for in /sys/class/infiniband and /dev/infiniband, behind libibverbs' back, shown to one
// program.
#pragma once

#include <string>

namespace uroce::run {

/// Gives this process a mount namespace in which /dev/infiniband and /sys/class/infiniband are those of `run_dir`.
/// Everything else, later mounts of the system included, stays as it is. Without root, `user_namespace` allows one
/// of its own, with the same user and group. Returns what failed, with the remedy; empty: done.
std::string enter_device_view(const std::string& run_dir, bool user_namespace);

}  // namespace uroce::run
