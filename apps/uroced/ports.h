// Opens ports and runs a daemon on them.
#pragma once

#include <atomic>
#include <string>

#include "apps/uroced/settings.h"

namespace uroce::daemon {

/// Opens the port and serves until `stop`. Returns empty, or what failed, why, and what to do.
std::string serve(const Settings& settings, const std::atomic<bool>& stop);

/// As serve() for `--port udp` (udp_port.cc).
std::string serve_udp(const Settings& settings, const std::atomic<bool>& stop);

/// As serve() for a DPDK port (dpdk_port.cc); an error in a build without DPDK (no_dpdk.cc).
std::string serve_dpdk(const Settings& settings, const std::atomic<bool>& stop);

}  // namespace uroce::daemon
