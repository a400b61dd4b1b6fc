// The parts of a cluster: each runs in namespaces that are already its own.
#pragma once

#include <sys/types.h>

#include <string>

namespace uroce::run {

/// The namespaces that each host has of its own; user and PID namespace are those of the cluster.
int host_namespaces();

/// In the first process of the cluster: /proc, /run with the shared folder, and /etc/hosts, for all hosts.
std::string mount_cluster_files(unsigned hosts);

/// In the first process of the cluster: the bridge, and an interface to each of the hosts, whose first processes
/// are given.
std::string connect_hosts(const pid_t* holders, unsigned hosts);

/// In the first process of a host. It owns the host's namespaces and starts its daemon. `channel`: a stream socket
/// to the first process of the cluster, see kHostExists.
[[noreturn]] void hold_host(unsigned host, bool show_devices, int channel);

/// What a host reports on its channel, and what it waits for in between. With kHostReady comes why devices are not
/// shown, if they are not. A host that fails sends another character, and what failed.
constexpr char kHostExists = 'e', kHostConnected = 'c', kHostReady = 'r';

/// In the first process of a host: its interface and addresses.
std::string configure_interface(unsigned host);

/// Empty, or that ip(8) is missing and what to install.
std::string check_network_tools();

}  // namespace uroce::run
