#include "namespaces.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

namespace uroce::run {
namespace {

/// The settings of the system that forbid namespaces to users other than root, and the values that do.
std::string refusing_setting() {
  struct Setting {
    const char *name, *path, *refuses, *remedy;
  };
  constexpr Setting kSettings[] = {
      {"kernel.unprivileged_userns_clone", "/proc/sys/kernel/unprivileged_userns_clone", "0", "1"},
      {"kernel.apparmor_restrict_unprivileged_userns", "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
       "1", "0"},
      {"user.max_user_namespaces", "/proc/sys/user/max_user_namespaces", "0", "10000"},
      {"user.max_net_namespaces", "/proc/sys/user/max_net_namespaces", "0", "10000"},
  };
  for (const Setting& setting : kSettings) {
    std::string value;
    if (std::ifstream(setting.path) >> value && value == setting.refuses) {
      return std::string(setting.name) + " is " + value + ": as root, `sysctl -w " + setting.name + "=" +
             setting.remedy + "`";
    }
  }
  return "the sandbox or container that this runs in forbids it; allow it there, for example with `docker run "
         "--privileged`";
}

std::string refused(const std::string& what) {
  const int reason = errno;
  const std::string text = failed(what);
  const bool forbidden = reason == EPERM || reason == ENOSPC || reason == EACCES;
  return forbidden ? text + " (" + refusing_setting() + ")" : text;
}

}  // namespace

std::string failed(const std::string& what) { return what + ": " + std::strerror(errno); }

bool write_file(const std::string& path, const std::string& text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool written = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int problem = errno;
  close(fd);
  errno = problem;
  return written;
}

std::string enter_namespaces(int flags) {
  const std::string user = std::to_string(geteuid()), group = std::to_string(getegid());
  if (unshare(flags) != 0) {
    return refused((flags & CLONE_NEWUSER) != 0 ? "cannot create a user namespace"
                                                : "cannot create a mount namespace");
  }
  if ((flags & CLONE_NEWUSER) == 0) return {};
  if (!write_file("/proc/self/setgroups", "deny") || !write_file("/proc/self/uid_map", user + " " + user + " 1") ||
      !write_file("/proc/self/gid_map", group + " " + group + " 1")) {
    return refused("cannot map the user into a namespace");
  }
  return {};
}

}  // namespace uroce::run
