#include "device_view.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include "namespaces.h"
#include "platform/unique_fd.h"

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

/// /dev of a container: what is in it may come from its image, so that no link is followed.
std::string add_to_dev(const fs::path& run_dir, int dev) {
  if (mkdirat(dev, "infiniband", 0755) != 0 && errno != EEXIST) return failed("mkdir infiniband");
  const UniqueFd folder(openat(dev, "infiniband", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder.valid()) return failed("infiniband in its /dev");
  std::error_code error;
  for (fs::directory_iterator entry(run_dir / "dev/infiniband", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (symlinkat("/dev/null", folder.get(), name.c_str()) != 0 && errno != EEXIST)
      return failed("symlink " + name);
  }
  return error ? (run_dir / "dev/infiniband").string() + ": " + error.message() : std::string();
}

/// Of a bind mount: the run directory is the daemon's, and root of a container has no say in it.
bool make_read_only(const fs::path& place) {
  return mount(nullptr, place.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC,
               nullptr) == 0;
}

/// /sys/devices/virtual with the folders of our classes. The others are bound, not overlaid: they stay writable.
std::string rebuild_virtual_devices(const fs::path& run_dir, const fs::path& sys) {
  const fs::path stage = run_dir / "dev", ours = run_dir / "sys/devices/virtual", theirs = sys / "devices/virtual";
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
    } else if (mount((ours / name).c_str(), place.c_str(), nullptr, MS_BIND, nullptr) != 0 ||
               !make_read_only(place)) {
      problem = failed("bind " + (ours / name).string());
    }
  }
  if (problem.empty() && !make_read_only(stage)) problem = failed("make " + theirs.string() + " read-only");
  if (problem.empty() && mount(stage.c_str(), theirs.c_str(), nullptr, MS_MOVE, nullptr) != 0)
    problem = failed("move to " + theirs.string());
  if (!problem.empty()) umount2(stage.c_str(), MNT_DETACH);
  return problem;
}

std::string show_in_sys(const fs::path& run_dir, const fs::path& sys) {
  const std::string problem = rebuild_virtual_devices(run_dir, sys);
  return problem.empty() ? overlay(run_dir / "sys/class", sys / "class", sys / "class") : problem;
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
  const std::string sys = show_in_sys(run_dir, "/sys");
  const std::string dev = rebuild_dev(run_dir);
  return sys.empty() || dev.empty() ? sys + dev : sys + "; " + dev;
}

std::string show_in_sys_of_container(const std::string& run_dir, const UniqueFd& sys) {
  return show_in_sys(run_dir, "/proc/self/fd/" + std::to_string(sys.get()));
}

std::string show_in_dev_of_container(const std::string& run_dir, const UniqueFd& dev) {
  return add_to_dev(run_dir, dev.get());
}

}  // namespace uroce::run
