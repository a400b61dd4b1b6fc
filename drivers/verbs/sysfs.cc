// sysfs files of the devices, from the tree that the daemons write in the run directory.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <cstddef>
#include <string>

#include "client/run_dir.h"
#include "export.h"

UROCE_EXPORT const char* ibv_get_sysfs_path() {
  // Never freed: callers keep the pointer.
  static const std::string* const path = uroce::verbs::guarded<std::string*>(
      nullptr, [] { return new std::string(uroce::client::run_dir() + "/sys"); });
  return path != nullptr ? path->c_str() : nullptr;
}

/// Reads dir/file into buf, without the trailing newline and zero-terminated if there is room. Returns the length,
/// or -1.
UROCE_EXPORT int ibv_read_sysfs_file(const char* dir, const char* file, char* buf, std::size_t size) {
  return uroce::verbs::guarded<int>(-1, [&]() -> int {
    const std::string path = std::string(dir) + "/" + file;
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t length = read(fd, buf, size);
    close(fd);
    if (length <= 0) return -1;
    if (buf[length - 1] == '\n') {
      buf[--length] = '\0';
    } else if (static_cast<std::size_t>(length) < size) {
      buf[length] = '\0';
    } else {
      return -1;
    }
    return static_cast<int>(length);
  });
}
