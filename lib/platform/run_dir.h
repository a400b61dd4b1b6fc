// The folder of the daemons' sockets, unless the user names one: the system's for root, otherwise the user's own.
#pragma once

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

#define UROCE_SYSTEM_RUN_DIR "/run/uroce"

namespace uroce {

/// $XDG_RUNTIME_DIR/uroce (pam_systemd(8)), or /tmp/uroce-UID.
inline std::string own_run_dir() {
  const char* runtime = ::secure_getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/') return std::string(runtime) + "/uroce";
  return "/tmp/uroce-" + std::to_string(::geteuid());
}

/// Where a daemon of this process listens.
inline std::string daemon_run_dir() {
  const char* given = ::secure_getenv("UROCE_RUN_DIR");
  if (given != nullptr && *given != '\0') return given;
  return ::geteuid() == 0 ? UROCE_SYSTEM_RUN_DIR : own_run_dir();
}

/// Whether a daemon of this user may listen in the folder: nobody else can have put a socket there.
inline bool is_own_run_dir(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) return false;
  if (info.st_uid != ::geteuid() || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0) return false;
  DIR* const folder = ::opendir(path.c_str());
  if (folder == nullptr) return false;
  bool found = false;
  while (const dirent* entry = ::readdir(folder)) found |= std::string_view(entry->d_name).ends_with(".sock");
  ::closedir(folder);
  return found;
}

/// Where programs of this process look for daemons: their user's own folder while it has one, else the system's.
inline std::string client_run_dir() {
  const char* given = ::secure_getenv("UROCE_RUN_DIR");
  if (given != nullptr && *given != '\0') return given;
  const std::string own = own_run_dir();
  return ::geteuid() != 0 && is_own_run_dir(own) ? own : UROCE_SYSTEM_RUN_DIR;
}

}  // namespace uroce
