// Shows the devices in /sys/class/infiniband and /dev/infiniband to one program, for those that read them directly
// and not through libibverbs.
#pragma once

#include <filesystem>
#include <string>

#include "platform/unique_fd.h"

namespace uroce::run {

/// Moves this process into a mount namespace in which /dev/infiniband and /sys/class/infiniband are those of
/// `run_dir`. Other mounts, including later ones of the system, are visible as before. Without root this needs
/// `user_namespace`, which keeps user and group. Returns empty on success, else what failed and what to do.
std::string enter_device_view(const std::string& run_dir, bool user_namespace);

/// Mounts these two folders in the mount namespace of this process, which has one of its own.
std::string mount_device_view(const std::string& run_dir);

/// The same for a container that has not begun to run: in its sysfs, and in the tmpfs of its devices. Returns as
/// above.
std::string show_in_sys_of_container(const std::string& run_dir, const UniqueFd& sys);
std::string show_in_dev_of_container(const std::string& run_dir, const UniqueFd& dev);

/// Adds an entry of a folder as `target` to a new one: a symbolic link is copied, anything else is bind-mounted.
bool bind_entry(const std::filesystem::path& source, const std::filesystem::path& target);

}  // namespace uroce::run
