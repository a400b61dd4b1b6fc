#include "control/link/sysfs_tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include "platform/unique_fd.h"

namespace uroce::control {
namespace {

namespace fs = std::filesystem;

// Ends the run directory's path: what follows is made by the daemon.
constexpr char kTop[] = "/./";

/// Writes files below a directory without following symbolic links, and only into directories of root or of the
/// daemon's user: in a shared directory such as /tmp others may have made the rest of the path first.
class Tree {
 public:
  /// Replaces the file in one step: readers see the old or the new text, also if the disk is full. It is a new
  /// file, since the old one may be a link, or open for writing by another user.
  void file(const fs::path& path, const std::string& text) {
    const UniqueFd& directory = parent(path);
    const std::string line = text + "\n";
    const std::string name = path.filename(), draft = "." + name + ".new";
    if (directory.valid()) ::unlinkat(directory.get(), draft.c_str(), 0);
    const UniqueFd out(directory.valid() ? ::openat(directory.get(), draft.c_str(),
                                                    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644)
                                         : -1);
    const bool written = out.valid() &&
                         ::write(out.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size()) &&
                         ::renameat(directory.get(), draft.c_str(), directory.get(), name.c_str()) == 0;
    if (written) return;
    note_failure(path);
    if (directory.valid()) ::unlinkat(directory.get(), draft.c_str(), 0);
  }
  /// False: there is no such file.
  static bool remove(const fs::path& path) {
    const UniqueFd directory = open_parent(path, false);
    return directory.valid() && ::unlinkat(directory.get(), path.filename().c_str(), 0) == 0;
  }
  void link(const fs::path& path, const char* to) {
    const UniqueFd directory = open_parent(path);
    const std::string name = path.filename();
    if (directory.valid()) ::unlinkat(directory.get(), name.c_str(), 0);
    const bool made = directory.valid() && ::symlinkat(to, directory.get(), name.c_str()) == 0;
    if (!made) note_failure(path);
  }
  absl::Status status() const {
    if (failed_.empty()) return absl::OkStatus();
    const std::string text = "can't write " + failed_.string();
    if (error_ == ENOSPC || error_ == EDQUOT || error_ == EFBIG) {
      return absl::ResourceExhaustedError(text + ": " + ::strerror(error_) +
                                          "; free space in the run directory, or use another --run-dir");
    }
    return absl::PermissionDeniedError(
        text + ": is the run directory writable, and does what is in it belong to root or to the daemon's user?");
  }

  /// The directory of the file; invalid: it is missing, or has a part that others control.
  static UniqueFd open_parent(const fs::path& path, bool make = true) {
    constexpr int kFlags = O_DIRECTORY | O_CLOEXEC | O_RDONLY;
    const std::string text = path.parent_path();
    const std::size_t tree = text.find(kTop);
    if (tree == std::string::npos) return UniqueFd();
    // The run directory has been checked (run_dir.h).
    UniqueFd at(::open(text.substr(0, tree).c_str(), kFlags));
    for (const fs::path& part : fs::path(text.substr(tree + 1))) {
      if (!at.valid()) break;
      if (make) ::mkdirat(at.get(), part.c_str(), 0755);
      UniqueFd next(::openat(at.get(), part.c_str(), kFlags | O_NOFOLLOW));
      struct stat info {};
      if (next.valid() && (::fstat(next.get(), &info) != 0 || (info.st_uid != 0 && info.st_uid != ::geteuid()))) {
        next.reset();
      }
      at = std::move(next);
    }
    return at;
  }

 private:
  /// The directory of the file, which stays open for the next one.
  const UniqueFd& parent(const fs::path& path) {
    if (!directory_.valid() || path.parent_path() != directory_path_) {
      directory_ = open_parent(path);
      directory_path_ = path.parent_path();
    }
    return directory_;
  }
  void note_failure(const fs::path& path) {
    if (failed_.empty()) error_ = errno, failed_ = path;
  }

  UniqueFd directory_;
  fs::path directory_path_;
  fs::path failed_;  ///< the first
  int error_ = 0;
};

/// Removes a file, or a directory with its contents, unless others control a part of its path.
void remove_below(const fs::path& path) {
  std::error_code error;
  if (Tree::open_parent(path, false).valid()) fs::remove_all(path, error);
}

/// A device of a class: its folder, and the link to it from the folder of the class.
struct ClassDevice {
  ClassDevice(const std::string& run_dir, const std::string& kind, const std::string& name)
      : dir(fs::path(run_dir + kTop) / "sys/devices/virtual" / kind / name),
        link(fs::path(run_dir + kTop) / "sys/class" / kind / name),
        target("../../devices/virtual/" + kind + "/" + name),
        subsystem("../../../../class/" + kind) {}

  void publish(Tree& tree) const {
    tree.link(dir / "subsystem", subsystem.c_str());
    tree.link(link, target.c_str());
  }
  void remove() const {
    remove_below(link);
    remove_below(dir);
  }

  fs::path dir, link;
  std::string target, subsystem;
};

ClassDevice device_of(const std::string& run_dir, const std::string& name) { return {run_dir, "infiniband", name}; }
ClassDevice verbs_of(const std::string& run_dir, const std::string& name) {
  return {run_dir, "infiniband_verbs", "uverbs-" + name};
}
fs::path port_dir(const std::string& run_dir, const std::string& name) {
  return device_of(run_dir, name).dir / "ports/1";
}
fs::path node(const std::string& run_dir, const std::string& name) {
  return fs::path(run_dir + kTop) / "dev/infiniband" / ("uverbs-" + name);
}

std::string all_cpus() {
  const unsigned n = std::thread::hardware_concurrency();
  return n <= 1 ? "0" : "0-" + std::to_string(n - 1);
}

// A cpumask in the kernel's format: 32-bit groups, the highest first.
std::string all_cpus_mask() {
  const unsigned n = std::max(1u, std::thread::hardware_concurrency());
  std::string mask;
  for (unsigned low = (n - 1) / 32 * 32;; low -= 32) {
    const unsigned bits = std::min(32u, n - low);
    char group[10];
    std::snprintf(group, sizeof(group), "%08x", bits == 32 ? 0xffffffffu : (1u << bits) - 1);
    mask += mask.empty() ? group : std::string(",") + group;
    if (low == 0) return mask;
  }
}

void write_device(Tree& tree, const fs::path& dir, const std::string& name, const Port& port) {
  const uroce_device_response& d = port.device();
  tree.file(dir / "node_type", "1: CA");
  tree.file(dir / "node_guid", guid_text(d.node_guid));
  tree.file(dir / "sys_image_guid", guid_text(d.sys_image_guid));
  tree.file(dir / "node_desc", name);
  tree.file(dir / "fw_ver", d.fw_version);
  tree.file(dir / "hw_rev", "0");
  tree.file(dir / "hca_type", "uroce");
  tree.file(dir / "board_id", "UROCE0000000001");
  tree.file(dir / "uverbs", "uverbs-" + name);
  tree.file(dir / "uevent", "NAME=" + name);
  tree.file(dir / "device/numa_node", "-1");
  tree.file(dir / "device/local_cpus", all_cpus_mask());
  tree.file(dir / "device/local_cpulist", all_cpus());
}

// rate_show(), drivers/infiniband/core/sysfs.c.
std::string rate_text(const uroce_port_response& port) {
  struct Speed {
    std::uint32_t code, tenths;  // of one lane, Gbit/s
    const char* name;
  };
  constexpr Speed kSpeeds[] = {{1, 25, "SDR"}, {2, 50, "DDR"}, {4, 100, "QDR"}, {16, 140, "FDR"}, {32, 250, "EDR"}};
  const Speed* speed = kSpeeds;
  for (const Speed& each : kSpeeds) {
    if (each.code == port.active_speed) speed = &each;
  }
  const std::uint32_t lanes = port.active_width == 2 ? 4 : 1, rate = speed->tenths * lanes;
  char text[48];
  std::snprintf(text, sizeof(text), "%u%s Gb/sec (%uX %s)", rate / 10, rate % 10 != 0 ? ".5" : "", lanes,
                speed->name);
  return text;
}

void write_state(Tree& tree, const fs::path& dir, const Port& port) {
  tree.file(dir / "state", port.up() ? "4: ACTIVE" : "1: DOWN");
  constexpr const char* kPhysical[] = {
      "0: ", "1: Sleep", "2: Polling", "3: Disabled", "4: PortConfigurationTraining", "5: LinkUp"};
  tree.file(dir / "phys_state", kPhysical[port.port().phys_state]);
  tree.file(dir / "rate", rate_text(port.port()));
}

// An empty entry is a zero GID, whose attributes cannot be read. A port without an interface in the kernel has no
// ndevs.
void write_gids(Tree& tree, const fs::path& dir, const Port& port) {
  const std::uint32_t count = port.port().gid_tbl_len;
  const std::string netdev = port.netdev();
  const auto file = [&](const char* part, std::uint32_t i) { return dir / part / std::to_string(i); };
  constexpr const char *kGids = "gids", *kTypes = "gid_attrs/types", *kInterfaces = "gid_attrs/ndevs";
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto gid = port.gids().at(i);
    tree.file(file(kGids, i), gid_text(gid.value_or(wire::Address{}).bytes));
    if (gid) {
      tree.file(file(kTypes, i), "RoCE v2");
    } else {
      Tree::remove(file(kTypes, i));
    }
    if (gid && !netdev.empty()) {
      tree.file(file(kInterfaces, i), netdev);
    } else {
      Tree::remove(file(kInterfaces, i));
    }
  }
  for (std::uint32_t i = count; Tree::remove(file(kGids, i)); ++i) {  // the table was longer
    Tree::remove(file(kTypes, i));
    Tree::remove(file(kInterfaces, i));
  }
}

void write_port(Tree& tree, const fs::path& dir, const Port& port) {
  write_state(tree, dir, port);
  tree.file(dir / "link_layer", "Ethernet");
  tree.file(dir / "lid", "0x0");
  tree.file(dir / "lid_mask_count", "0");
  tree.file(dir / "sm_lid", "0x0");
  tree.file(dir / "sm_sl", "0");
  tree.file(dir / "cap_mask", "0x00010000");
  tree.file(dir / "pkeys/0", "0xffff");
  tree.file(dir / "hw_counters/lifespan", "1000");  // ms
  write_gids(tree, dir, port);
}

}  // namespace

absl::Status write_sysfs_tree(const std::string& run_dir, const std::string& name, const Port& port) {
  remove_sysfs_tree(run_dir, name);
  Tree tree;
  const ClassDevice device = device_of(run_dir, name), verbs = verbs_of(run_dir, name);
  write_device(tree, device.dir, name, port);
  write_port(tree, device.dir / "ports/1", port);
  for (const auto& [path, value] : counter_files({}, 0))
    tree.file(device.dir / "ports/1" / path, std::to_string(value));
  tree.file(verbs.dir / "ibdev", name);
  tree.file(verbs.dir / "abi_version", "1");
  tree.file(verbs.dir / "dev", "0:0");
  tree.link(node(run_dir, name), "/dev/null");
  verbs.publish(tree);
  device.publish(tree);
  return tree.status();
}

absl::Status update_sysfs_tree(const std::string& run_dir, const std::string& name, const Port& port) {
  const fs::path dir = port_dir(run_dir, name);
  std::error_code error;
  if (!fs::exists(dir, error)) return absl::OkStatus();
  Tree tree;
  write_state(tree, dir, port);
  write_gids(tree, dir, port);
  return tree.status();
}

bool has_sysfs_tree(const std::string& run_dir, const std::string& name) {
  std::error_code error;
  return fs::exists(port_dir(run_dir, name), error);
}

absl::Status update_counter_files(const std::string& run_dir, const std::string& name, const CounterFiles& before,
                                  const CounterFiles& now) {
  if (before == now || !has_sysfs_tree(run_dir, name)) return absl::OkStatus();
  const fs::path dir = port_dir(run_dir, name);
  Tree tree;
  for (const auto& [path, value] : now) {
    const auto old = before.find(path);
    if (old == before.end() || old->second != value) tree.file(dir / path, std::to_string(value));
  }
  return tree.status();
}

void remove_sysfs_tree(const std::string& run_dir, const std::string& name) {
  device_of(run_dir, name).remove();
  verbs_of(run_dir, name).remove();
  remove_below(node(run_dir, name));
}

}  // namespace uroce::control
