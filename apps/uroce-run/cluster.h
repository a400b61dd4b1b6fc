// `uroce-run --hosts N`: hosts on one machine. Each host has a network namespace with an interface eth0, a name, a
// view of /dev, /sys and /etc/hosts, and the device uroce0, at the addresses that the kernel has on eth0. One
// daemon serves all devices, on a switch in memory. The program runs on node1.
//
// Nothing of it is visible outside: files are in mounts of its own namespace, and all its processes are in a PID
// namespace, which the kernel ends with its first process. That process ends with the program, and with uroce-run.
#pragma once

#include <functional>
#include <string>

namespace uroce::run {

constexpr unsigned kLeastHosts = 2, kMostHosts = 32;
/// The run directory: the same path on each host, with other contents.
constexpr char kHostRunDir[] = "/run/uroce";
constexpr char kHostDevice[] = "uroce0";
/// The folder that all hosts share.
constexpr char kClusterDir[] = "/run/uroce-hosts";

std::string host_name(unsigned host);
std::string host_address(unsigned host);
std::string host_address6(unsigned host);

struct ClusterOptions {
  unsigned hosts = 0;
  char** program = nullptr;               ///< nullptr: the user's shell
  bool show_devices = true;               ///< in /dev and /sys
  std::function<void()> set_environment;  ///< of the program
};

/// Builds the hosts, runs the program on the first one and waits for its end. The exit status as a shell's.
int run_cluster(const ClusterOptions& options);

/// Moves this process to a host of the cluster that it runs in: by name or address. Returns empty on success, else
/// what failed and what to do.
std::string enter_host(const std::string& host);

/// Behaves as ssh(1) and rsh(1) do, for hosts of the cluster: [OPTIONS] [USER@]HOST [COMMAND ...]. The command gets
/// the environment and the folder of the caller. Returns the exit status if there is no command to execute.
int remote_shell(int argc, char** argv);

}  // namespace uroce::run
