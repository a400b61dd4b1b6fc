// The parts of a cluster: each runs in namespaces that are already its own.
#pragma once

#include <string>

namespace uroce::run {

/// The namespaces that each host has of its own; user and PID namespace are those of the cluster.
int host_namespaces();

/// In the first process of the cluster: /proc, /run with the shared folder, and /etc/hosts, for all hosts.
std::string mount_cluster_files(unsigned hosts);

/// The run directory of a host, as the cluster sees it. The host itself sees it as kHostRunDir.
std::string run_dir_of(unsigned host);

/// In the first process of a host. It owns the host's namespaces. `channel`: a stream socket to the first process
/// of the cluster, see kHostExists.
[[noreturn]] void hold_host(unsigned host, bool show_devices, int channel);

/// What a host reports on its channel, and that its device is served, for which it waits in between. With
/// kHostReady comes why devices are not shown, if they are not. A host that fails sends another character, and what
/// failed.
constexpr char kHostExists = 'e', kDeviceServed = 's', kHostReady = 'r';

/// In the first process of a host, before it has eth0: IPv6 on, `lo` up. Returns empty, or what failed.
std::string prepare_network();

}  // namespace uroce::run
