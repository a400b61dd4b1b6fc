#include "cluster_daemon.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "cluster.h"
#include "cluster_host.h"
#include "namespaces.h"
#include "own_daemon.h"
#include "signals.h"

namespace uroce::run {
namespace {

constexpr int kReadyTimeoutMs = 60'000;

/// What the device of a host has of its own, as `uroced --device` takes it.
std::string device_of(unsigned host, pid_t holder) {
  char mac[18];
  std::snprintf(mac, sizeof(mac), "02:00:c0:00:02:%02x", host);
  return std::string("name=") + kHostDevice + ",ip=" + host_address(host) + "/24,ip=" + host_address6(host) +
         "/64,mac=" + mac + ",netdev=eth0@/proc/" + std::to_string(holder) + "/ns/net,run_dir=" + run_dir_of(host);
}

/// Programs need the cores more than the daemon's workers do.
unsigned workers() { return std::clamp(std::thread::hardware_concurrency() / 4, 1u, 4u); }

[[noreturn]] void become_daemon(std::span<const pid_t> holders) {
  ::setpgid(0, 0);  // Ctrl-C is for the program
  act_on_signals();
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(nothing, STDOUT_FILENO);
  const std::string program = daemon_path();
  std::vector<std::string> arguments{program,          "--workers",   std::to_string(workers()),
                                     "--no-hugepages", "--log-level", "warning"};
  for (std::size_t i = 0; i < holders.size(); ++i) {
    arguments.insert(arguments.end(), {"--device", device_of(static_cast<unsigned>(i) + 1, holders[i])});
  }
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  ::execv(program.c_str(), pointers.data());
  std::fprintf(stderr, "uroce-run: %s: %s\n", program.c_str(), std::strerror(errno));
  ::_exit(127);
}

}  // namespace

std::string start_cluster_daemon(std::span<const pid_t> holders, pid_t& daemon) {
  daemon = ::fork();
  if (daemon == 0) become_daemon(holders);
  if (daemon < 0) return failed("no further process");
  // The last one that it opens.
  const std::string socket = run_dir_of(static_cast<unsigned>(holders.size())) + "/" + kHostDevice + ".sock";
  if (wait_until_served(daemon, socket, kReadyTimeoutMs)) return {};
  if (kept_signal() != 0) return "interrupted";
  if (daemon < 0) return daemon_path().string() + " ended; it says why above";
  return daemon_path().string() + " did not become ready within " + std::to_string(kReadyTimeoutMs / 1000) + " s";
}

}  // namespace uroce::run
