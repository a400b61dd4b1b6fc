// Several RDMA devices in one process, each a host of its own on one switch in memory: `--hosts N`, whose names and
// addresses count up, or `--device` for each.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apps/uroced/settings.h"

namespace uroce::uroced {

/// Sets in `device` what the text of a `--device` has: "KEY=VALUE,KEY=VALUE". Returns empty, or what is allowed.
std::string apply_device(std::string_view text, Settings& device);

/// The settings of each device. Returns empty, or what is wrong and what to do.
std::string settings_of_devices(const Settings& settings, std::vector<Settings>& devices);
/// As settings_of_devices(), of settings that it has accepted.
std::vector<Settings> devices_of(const Settings& settings);

/// Whether `next` has the devices of `current` but for their addresses and gateways.
bool only_addresses_differ(const Settings& current, const Settings& next);

}  // namespace uroce::uroced
