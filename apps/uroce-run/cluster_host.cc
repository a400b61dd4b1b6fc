// The files and the first process of each host.
#include "cluster_host.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <system_error>

#include "cluster.h"
#include "device_view.h"
#include "namespaces.h"

namespace uroce::run {
namespace {

namespace fs = std::filesystem;

bool write_new(const fs::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  return file.good();
}

bool make_run_dirs(unsigned hosts) {
  for (unsigned host = 1; host <= hosts; ++host) {
    if (::mkdir(run_dir_of(host).c_str(), 0755) != 0) return false;
  }
  return true;
}

/// The folder under which a descriptor's contents are reached after another mount has covered them.
fs::path behind(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

/// A /run with everything that it had, except what belongs to daemons of the system.
std::string rebuild_run() {
  const int old = ::open("/run", O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (old < 0) return failed("/run");
  std::error_code error;
  if (::mount("uroce-run", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755") != 0)
    return failed("cannot mount a tmpfs on /run");
  for (const auto& entry : fs::directory_iterator(behind(old), error)) {
    const std::string name = entry.path().filename();
    if (name == "uroce" || name == "uroce-hosts") continue;
    bind_entry(entry.path(), "/run/" + name);  // one that cannot be mounted is missed by few programs
  }
  ::close(old);
  if (error) return "cannot read /run: " + error.message();
  return {};
}

/// Programs for the hosts: this one also under the names of remote shells.
std::string make_programs() {
  const fs::path bin = fs::path(kClusterDir) / "bin";
  std::error_code error;
  fs::create_directory(bin, error);
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  for (const char* name : {"ssh", "rsh"}) fs::create_symlink(self, bin / name, error);
  for (const char* name : {"uroced", "uroce-run", "urocectl", "uroce-ping"}) {
    fs::create_symlink(self.parent_path() / name, bin / name, error);
  }
  return error ? bin.string() + ": " + error.message() : std::string();
}

std::string hosts_file(unsigned hosts) {
  std::string text = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n";
  for (unsigned host = 1; host <= hosts; ++host) {
    text +=
        host_address(host) + "\t" + host_name(host) + "\n" + host_address6(host) + "\t" + host_name(host) + "-6\n";
  }
  return text;
}

/// A line for each host: its name and `more`.
std::string names(unsigned hosts, const std::string& more) {
  std::string text;
  for (unsigned host = 1; host <= hosts; ++host) text += host_name(host) + more + "\n";
  return text;
}

/// A new sysfs shows the interfaces of the network namespace that it is mounted in.
std::string mount_sys() {
  const int groups = ::open("/sys/fs/cgroup", O_PATH | O_DIRECTORY | O_CLOEXEC);
  std::string problem;
  if (::mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0) {
    problem = failed("cannot mount sysfs on /sys");
  } else if (groups >= 0) {
    ::mount(behind(groups).c_str(), "/sys/fs/cgroup", nullptr, MS_BIND | MS_REC, nullptr);
  }
  if (groups >= 0) ::close(groups);
  return problem;
}

/// Programs that compare boot ids, such as UCX and NCCL, take hosts for different machines.
void mount_boot_id(const std::string& scratch) {
  std::random_device random;
  char text[40];
  std::snprintf(text, sizeof(text), "%08x-%04x-4%03x-8%03x-%08x%04x\n", random(), random() & 0xffff,
                random() & 0xfff, random() & 0xfff, random(), random() & 0xffff);
  const std::string file = scratch + "/boot_id";
  if (write_new(file, text)) {
    ::mount(file.c_str(), "/proc/sys/kernel/random/boot_id", nullptr, MS_BIND, nullptr);
  }
}

std::string mount_host_files(unsigned host) {
  const std::string name = host_name(host), run_dir = kHostRunDir;
  if (::sethostname(name.data(), name.size()) != 0) return failed("cannot set the host's name");
  if (::mount(run_dir_of(host).c_str(), kHostRunDir, nullptr, MS_BIND, nullptr) != 0)
    return failed("cannot mount " + run_dir);
  std::error_code error;
  if (fs::is_directory("/dev/shm", error) &&
      ::mount("uroce-shm", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777") != 0) {
    return failed("cannot mount a tmpfs on /dev/shm");
  }
  mount_boot_id(run_dir);
  return mount_sys();
}

void report(int channel, char state, const std::string& text = {}) {
  const std::string message = state + text;
  static_cast<void>(::send(channel, message.data(), message.size(), MSG_NOSIGNAL));
}

[[noreturn]] void give_up(int channel, unsigned host, const std::string& problem) {
  report(channel, '!', host_name(host) + ": " + problem);
  ::_exit(1);
}

}  // namespace

std::string run_dir_of(unsigned host) { return kClusterDir + ("/" + host_name(host)); }

int host_namespaces() { return CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC; }

std::string mount_cluster_files(unsigned hosts) {
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0)
    return failed("cannot detach from the mounts of the system");
  if (::mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0) {
    return failed("cannot mount /proc") +
           "; a container that hides parts of /proc does not permit it: start it with `docker run --privileged` or "
           "`podman run --security-opt unmask=ALL --device /dev/net/tun`";
  }
  if (std::string problem = rebuild_run(); !problem.empty()) return problem;
  const fs::path shared = kClusterDir;
  if (::mkdir(kHostRunDir, 0755) != 0 || ::mkdir(shared.c_str(), 0755) != 0 ||
      !write_new(shared / "hosts", hosts_file(hosts)) ||
      !write_new(shared / "mpi-hosts", names(hosts, " slots=1")) ||
      !write_new(shared / "names", names(hosts, "")) || !make_run_dirs(hosts)) {
    return failed("cannot write " + shared.string());
  }
  // Without this file, hosts are reached by address only.
  ::mount((shared / "hosts").c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr);
  return make_programs();
}

void hold_host(unsigned host, bool show_devices, int channel) {
  ::setpgid(0, 0);  // Ctrl-C is for the program
  if (::unshare(host_namespaces()) != 0) give_up(channel, host, failed("cannot create its namespaces"));
  const auto check = [&](const std::string& problem) {
    if (!problem.empty()) give_up(channel, host, problem);
  };
  check(mount_host_files(host));
  check(prepare_network());
  report(channel, kHostExists);
  char state = 0;
  if (::read(channel, &state, 1) != 1 || state != kDeviceServed) ::_exit(1);
  report(channel, kHostReady, show_devices ? mount_device_view(kHostRunDir) : std::string());
  ::close(channel);
  for (;;) ::pause();  // the namespaces exist as long as this process
}

}  // namespace uroce::run
