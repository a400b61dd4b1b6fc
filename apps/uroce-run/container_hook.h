// What a container engine starts for `uroce-run --cdi`, before the container's program: a hook of OCI
// (github.com/opencontainers/runtime-spec, config.md, "createContainer").
#pragma once

#include <string>

namespace uroce::run {

/// Shows the devices in /sys and /dev of the container whose state (JSON) is on standard input. Always 0, as most
/// programs need neither: what failed is printed, and in the system's log.
int run_container_hook(const std::string& run_dir);

}  // namespace uroce::run
