#include "device_view.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <vector>

#include "namespaces.h"

namespace uroce::run {
namespace {

namespace fs = std::filesystem;

/// /dev is rebuilt by bind mounts: an overlay would hide /dev/shm and the other mounts below it. The new folder is
/// assembled over the run directory's dev/, which is not needed afterwards.
std::string rebuild_dev(const fs::path& run_dir) {
  const fs::path stage = run_dir / "dev";
  std::error_code error;
  std::vector<std::string> devices;
  for (const auto& entry : fs::directory_iterator(stage / "infiniband", error)) {
    devices.push_back(entry.path().filename());
  }
  if (error) return (stage / "infiniband").string() + ": " + error.message();
  if (mount("uroce-dev", stage.c_str(), "tmpfs", MS_NOSUID, "mode=0755") != 0)
    return failed("cannot mount a tmpfs for /dev");
  std::string problem;
  for (const auto& entry : fs::directory_iterator("/dev", error)) {
    if (entry.path().filename() == "infiniband") continue;
    if (!bind_entry(entry.path(), stage / entry.path().filename()))
      problem = failed("bind " + entry.path().string());
  }
  if (mkdir((stage / "infiniband").c_str(), 0755) != 0) problem = failed("mkdir infiniband");
  for (const std::string& name : devices) {
    if (symlink("/dev/null", (stage / "infiniband" / name).c_str()) != 0) problem = failed("symlink " + name);
  }
  if (problem.empty() && mount(stage.c_str(), "/dev", nullptr, MS_MOVE, nullptr) != 0)
    problem = failed("move to /dev");
  if (!problem.empty()) umount2(stage.c_str(), MNT_DETACH);
  return problem;
}

std::string overlay(const std::string& ours, const std::string& theirs, const std::string& place) {
  if (ours.find_first_of(":,\\") != std::string::npos)
    return ours + ": the path of an overlay must not contain ':', ',' or '\\'";
  const std::string layers = "lowerdir=" + ours + ":" + theirs;
  if (mount("uroce-sys", place.c_str(), "overlay", MS_RDONLY | MS_NOSUID | MS_NODEV, layers.c_str()) != 0) {
    return failed("cannot mount an overlay on " + place);
  }
  return {};
}

/// /sys/devices/virtual with the folders of our classes. The others are bound, not overlaid: they stay writable.
std::string rebuild_virtual_devices(const fs::path& run_dir) {
  const fs::path stage = run_dir / "dev", ours = run_dir / "sys/devices/virtual", theirs = "/sys/devices/virtual";
  if (mount("uroce-sys", stage.c_str(), "tmpfs", MS_NOSUID, "mode=0755") != 0)
    return failed("cannot mount a tmpfs for /sys/devices/virtual");
  std::string problem;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(theirs, error)) {
    const fs::path name = entry.path().filename();
    if (fs::exists(ours / name, error)) continue;
    if (!bind_entry(entry.path(), stage / name)) problem = failed("bind " + entry.path().string());
  }
  for (const char* name : {"infiniband", "infiniband_verbs"}) {
    const fs::path place = stage / name;
    if (mkdir(place.c_str(), 0755) != 0) {
      problem = failed("mkdir " + place.string());
    } else if (fs::exists(theirs / name, error)) {
      problem += overlay(ours / name, theirs / name, place);
    } else if (mount((ours / name).c_str(), place.c_str(), nullptr, MS_BIND, nullptr) != 0) {
      problem = failed("bind " + (ours / name).string());
    }
  }
  if (problem.empty() && mount(stage.c_str(), theirs.c_str(), nullptr, MS_MOVE, nullptr) != 0)
    problem = failed("move to " + theirs.string());
  if (!problem.empty()) umount2(stage.c_str(), MNT_DETACH);
  return problem;
}

std::string show_in_sys(const fs::path& run_dir) {
  const std::string problem = rebuild_virtual_devices(run_dir);
  return problem.empty() ? overlay(run_dir / "sys/class", "/sys/class", "/sys/class") : problem;
}

}  // namespace

bool bind_entry(const fs::path& source, const fs::path& target) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(source, error);
  if (error) return true;  // removed since the folder was read
  if (fs::is_symlink(status)) {
    fs::copy_symlink(source, target, error);
    return !error;
  }
  if (fs::is_directory(status)) {
    return mkdir(target.c_str(), 0755) == 0 &&
           mount(source.c_str(), target.c_str(), nullptr, MS_BIND | MS_REC, nullptr) == 0;
  }
  const int fd = open(target.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  if (fd < 0) return false;
  close(fd);
  return mount(source.c_str(), target.c_str(), nullptr, MS_BIND, nullptr) == 0;
}

std::string enter_device_view(const std::string& run_dir, bool user_namespace) {
  const std::string problem = enter_namespaces(CLONE_NEWNS | (user_namespace ? CLONE_NEWUSER : 0));
  if (!problem.empty()) return problem;
  // Mounts made outside propagate to us, ours do not propagate outside (mount_namespaces(7)).
  if (mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0)
    return failed("cannot detach from the mounts of the system");
  return mount_device_view(run_dir);
}

std::string mount_device_view(const std::string& run_dir) {
  // /sys first, so that a failure with /dev does not affect it.
  const std::string sys = show_in_sys(run_dir);
  const std::string dev = rebuild_dev(run_dir);
  return sys.empty() || dev.empty() ? sys + dev : sys + "; " + dev;
}

}  // namespace uroce::run
