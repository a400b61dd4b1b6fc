// Discovery of daemons: their sockets RUN_DIR/NAME.sock, and the files that they write under RUN_DIR/sys.
#pragma once

#include <string>
#include <vector>

namespace uroce::client {

/// The environment variable UROCE_RUN_DIR, or the default (platform/run_dir.h).
std::string run_dir();
std::string socket_path(const std::string& device);

/// Names of the devices whose daemon accepts connections, sorted. UROCE_DEVICES="a,b" restricts and orders them.
/// `error`: the errno, such as EMFILE, that kept us from asking some of them; 0: all were asked.
std::vector<std::string> list_devices(int* error = nullptr);

/// First line of RUN_DIR/sys/class/infiniband/DEVICE/FILE; empty if the file can't be read.
std::string device_file(const std::string& device, const std::string& file);

}  // namespace uroce::client
