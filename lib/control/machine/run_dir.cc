#include "control/machine/run_dir.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "platform/run_dir.h"

namespace uroce::control {
namespace {

absl::Status check(const std::string& path, uid_t user) {
  const UniqueFd directory(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat info {};
  if (!directory.valid() || ::fstat(directory.get(), &info) != 0) {
    return absl::ErrnoToStatus(errno, path + ": give a directory with --run-dir");
  }
  if (info.st_uid != 0 && info.st_uid != user) {
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

absl::Status make_run_dir(const std::string& path, uid_t user) {
  for (std::size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    const mode_t mode = part == own_run_dir() ? 0700 : 0755;
    if (::mkdir(part.c_str(), mode) != 0 && errno != EEXIST) {
      return absl::ErrnoToStatus(
          errno, "can't make the run directory " + part + ": start as root, or give another with --run-dir");
    }
    if (slash == std::string::npos) return check(path, user);
  }
}

absl::Status open_run_file(const std::string& path, UniqueFd& out) {
  // O_NONBLOCK: of a FIFO.
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  const int error = errno;
  struct stat info {};
  if ((file.valid() ? ::fstat(file.get(), &info) : ::lstat(path.c_str(), &info)) != 0) {
    return absl::ErrnoToStatus(file.valid() ? errno : error,
                               "open " + path + ": run as a user with write permission, or use --run-dir");
  }
  constexpr const char* kRemedy = "; remove it, or give a directory with --run-dir in which others make no files";
  if (info.st_uid != 0 && info.st_uid != ::geteuid()) {
    return absl::PermissionDeniedError(path + " belongs to user " + std::to_string(info.st_uid) +
                                       ", who could hold its lock or shorten it" + kRemedy);
  }
  // Who can open the file can lock it.
  if (!S_ISREG(info.st_mode) || info.st_nlink != 1 || (info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return absl::PermissionDeniedError(path + " is a link, not a regular file, or open to other users" + kRemedy);
  }
  if (!file.valid()) {
    return absl::ErrnoToStatus(error, "open " + path + ": run as a user with write permission, or use --run-dir");
  }
  out = std::move(file);
  return absl::OkStatus();
}

}  // namespace uroce::control
