// The daemon of a cluster: one process with a device for each host, on a switch in memory. In the network namespace
// of a host the device has the interface eth0 (uroced --netdev), and in the host's run directory its socket.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>

namespace uroce::run {

/// Starts it and waits until it serves all hosts, whose first processes are given. Returns empty, or what failed.
std::string start_cluster_daemon(std::span<const pid_t> holders, pid_t& daemon);

}  // namespace uroce::run
