#include "container_hook.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <syslog.h>
#include <unistd.h>

#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>

#include <nlohmann/json.hpp>

#include "device_view.h"
#include "namespaces.h"
#include "platform/unique_fd.h"

namespace uroce::run {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

Json member(const Json& json, const char* name) { return json.is_object() ? json.value(name, Json()) : Json(); }

/// Empty: there is none.
std::string text_member(const Json& json, const char* name) {
  const Json found = member(json, name);
  return found.is_string() ? found.get<std::string>() : std::string();
}

/// The file system of the container: root.path of its configuration, from the folder of that (the bundle).
std::string root_of(std::istream& state, std::string& problem) {
  const std::string bundle = text_member(Json::parse(state, nullptr, false), "bundle");
  if (bundle.empty()) {
    problem = "no state of a container with its \"bundle\" on standard input";
    return {};
  }
  std::ifstream file(fs::path(bundle) / "config.json");
  const std::string root = text_member(member(Json::parse(file, nullptr, false), "root"), "path");
  if (root.empty()) problem = bundle + "/config.json: names no root.path";
  return root.empty() ? std::string() : (fs::path(bundle) / root).string();
}

/// Whether what is mounted there would also appear in other mount namespaces (mount_namespaces(7)).
bool is_shared(int fd) {
  std::ifstream info("/proc/self/fdinfo/" + std::to_string(fd)), mounts("/proc/self/mountinfo");
  std::string word, id, line;
  while (info >> word && word != "mnt_id:") continue;
  info >> id;
  while (std::getline(mounts, line)) {
    if (line.starts_with(id + " ")) return line.find(" shared:") != std::string::npos;
  }
  return true;
}

/// A folder of the container at which the engine has mounted a file system of this type (statfs(2)). The rest of
/// the root comes from the image, which may have put a link to the machine's files in this place.
UniqueFd mounted(int root, const char* name, long type, std::string& problem) {
  open_how how{};
  how.flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS;
  UniqueFd folder(static_cast<int>(syscall(SYS_openat2, root, name, &how, sizeof how)));
  struct statfs system {};
  struct statx about {};
  if (!folder.valid() || fstatfs(folder.get(), &system) != 0 ||
      statx(folder.get(), "", AT_EMPTY_PATH, STATX_TYPE, &about) != 0) {
    problem = failed("its /" + std::string(name));
  } else if (system.f_type != type || (about.stx_attributes & STATX_ATTR_MOUNT_ROOT) == 0) {
    problem = "its /" + std::string(name) + " is not what an engine mounts there";
  } else if (is_shared(folder.get())) {
    problem = "its /" + std::string(name) + " would appear in other places, too";
  }
  return folder;
}

/// Whether this /dev is the machine's, which some give to containers.
bool is_ours(const UniqueFd& dev) {
  struct stat theirs {
  }, ours{};
  return fstat(dev.get(), &theirs) != 0 || stat("/dev", &ours) != 0 || theirs.st_dev == ours.st_dev;
}

std::string show_in_sys(const std::string& run_dir, int root) {
  std::string problem;
  const UniqueFd sys = mounted(root, "sys", SYSFS_MAGIC, problem);
  if (!problem.empty()) return problem;
  const UniqueFd stage(open(run_dir.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!stage.valid()) return failed(run_dir);
  return is_shared(stage.get()) ? run_dir + " is shared by mount namespaces"
                                : show_in_sys_of_container(run_dir, sys);
}

std::string show_in_dev(const std::string& run_dir, int root) {
  std::string problem;
  const UniqueFd dev = mounted(root, "dev", TMPFS_MAGIC, problem);
  if (!problem.empty()) return problem;
  return is_ours(dev) ? "its /dev is that of this machine" : show_in_dev_of_container(run_dir, dev);
}

/// Each as far as it goes. Returns what failed.
std::string show_devices(const std::string& run_dir) try {
  std::string problem;
  const std::string path = root_of(std::cin, problem);
  if (!problem.empty()) return problem;
  const UniqueFd root(open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root.valid()) return failed(path);
  const std::string sys = show_in_sys(run_dir, root.get()), dev = show_in_dev(run_dir, root.get());
  return sys.empty() || dev.empty() ? sys + dev : sys + "; " + dev;
} catch (const std::exception& error) {
  return error.what();
}

}  // namespace

int run_container_hook(const std::string& run_dir) {
  const std::string problem = show_devices(run_dir);
  if (problem.empty()) return 0;
  // Some engines print nothing of a hook that ends with 0.
  openlog("uroce-run", LOG_PERROR, LOG_USER);
  syslog(LOG_WARNING,
         "note: the container does not see the devices in /dev and /sys (%s); most programs need neither",
         problem.c_str());
  return 0;
}

}  // namespace uroce::run
