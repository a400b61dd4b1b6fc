// `--hosts N`: several RDMA devices in one process, each a host of its own on one switch in memory.
#pragma once

#include <string>
#include <vector>

#include "apps/uroced/settings.h"

namespace uroce::daemon {

/// Each host's settings: names and addresses count up from those given. Returns empty, or what is wrong and what to
/// do.
std::string settings_of_hosts(const Settings& settings, std::vector<Settings>& hosts);

}  // namespace uroce::daemon
