#include "control/run_dir.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "platform/run_dir.h"
#include "platform/unique_fd.h"

namespace uroce::daemon {
namespace {

absl::Status check(const std::string& path) {
  const UniqueFd directory(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat info {};
  if (!directory.valid() || ::fstat(directory.get(), &info) != 0) {
    return absl::ErrnoToStatus(errno, path + ": give a directory with --run-dir");
  }
  if (info.st_uid != 0 && info.st_uid != ::geteuid()) {
    return absl::PermissionDeniedError(
        "the run directory " + path + " belongs to user " + std::to_string(info.st_uid) +
        ", which could replace its files; give one of root or of the daemon's user with "
        "--run-dir");
  }
  constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;
  if ((info.st_mode & kOthersWrite) != 0 && (info.st_mode & S_ISVTX) == 0) {
    return absl::PermissionDeniedError("other users may replace files in the run directory " + path +
                                       "; forbid it (chmod go-w), or give another with --run-dir");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status make_run_dir(const std::string& path) {
  for (std::size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    const mode_t mode = part == own_run_dir() ? 0700 : 0755;
    if (::mkdir(part.c_str(), mode) != 0 && errno != EEXIST) {
      return absl::ErrnoToStatus(
          errno, "can't make the run directory " + part + ": start as root, or give another with --run-dir");
    }
    if (slash == std::string::npos) return check(path);
  }
}

}  // namespace uroce::daemon
