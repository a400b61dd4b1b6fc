// Where daemons are found: RUN_DIR/NAME.sock, and what a daemon tells in files under RUN_DIR/sys.
#pragma once

#include <string>
#include <vector>

namespace uroce::client {

/// UROCE_RUN_DIR, else the default.
std::string run_dir();
std::string socket_path(const std::string& device);

/// Names of the devices whose daemon takes connections, sorted; UROCE_DEVICES="a,b" restricts and orders them.
std::vector<std::string> list_devices();

/// First line of RUN_DIR/sys/class/infiniband/DEVICE/FILE; empty when there is none.
std::string device_file(const std::string& device, const std::string& file);

}  // namespace uroce::client
