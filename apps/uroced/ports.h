// The device stack of each kind of port, and a daemon over it.
#pragma once

#include <atomic>
#include <string>

#include "apps/uroced/settings.h"

namespace uroce::daemon {

/// Opens the port and serves until `stop`. An error says what, why and what to do; empty: ended in order.
std::string serve(const Settings& settings, const std::atomic<bool>& stop);

/// The same over a DPDK port (dpdk_port.cc), or an error where DPDK was not built in (no_dpdk.cc).
std::string serve_dpdk(const Settings& settings, const std::atomic<bool>& stop);

}  // namespace uroce::daemon
