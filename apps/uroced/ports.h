// Opens ports and runs a daemon on them.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "apps/uroced/settings.h"

namespace uroce::uroced {

/// Requests to a daemon that serves.
struct Requests {
  std::atomic<bool> stop{false};
  std::atomic<bool> reload{false};  ///< to read the settings again
  /// Reads them as at the start. Returns empty, or what is wrong.
  std::function<std::string(Settings&)> reread;
};

/// Opens the port and serves until it is to stop. Returns empty, or what failed, why, and what to do.
std::string serve(const Settings& settings, Requests& requests);

/// What serve() would refuse, as far as it can be found out without opening the port. Returns empty, or what is
/// wrong and what to do.
std::string validate(const Settings& settings);

/// Empty, or why there can be no such port: its name, its interface, or a right that the process lacks.
std::string check_port(const Settings& settings);
/// Empty, or what is wrong with Settings::fault.
std::string check_fault(const Settings& settings);

/// The device in a few words: "uroce0 on loopback, 192.0.2.1/24".
std::string summary(const Settings& settings);

/// As serve() for `--port udp` (udp_port.cc).
std::string serve_udp(const Settings& settings, Requests& requests);

/// As serve() for a DPDK port (dpdk_port.cc); an error in a build without DPDK (no_dpdk.cc).
std::string serve_dpdk(const Settings& settings, Requests& requests);

}  // namespace uroce::uroced
