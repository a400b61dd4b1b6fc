#include "client/run_dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "client/system.h"
#include "platform/run_dir.h"

namespace uroce::client {
namespace {

/// Sets `error` where the process has no descriptor to find out with.
bool answers(const std::string& path, int& error) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return false;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int fd = sys::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    error = errno;
    return false;
  }
  const bool ok = sys::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  sys::close(fd);
  return ok;
}

std::vector<std::string> candidates(int& error) {
  std::vector<std::string> names;
  if (const char* wanted = secure_getenv("UROCE_DEVICES"); wanted != nullptr && *wanted != '\0') {
    std::string_view rest = wanted;
    while (!rest.empty()) {
      const std::size_t comma = std::min(rest.find(','), rest.size());
      if (comma != 0) names.emplace_back(rest.substr(0, comma));
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
    return names;
  }
  DIR* const dir = opendir(run_dir().c_str());
  if (dir == nullptr) {
    if (errno == EMFILE || errno == ENFILE) error = errno;
    return names;
  }
  constexpr std::string_view kSuffix = ".sock";
  while (const dirent* entry = readdir(dir)) {
    const std::string_view name = entry->d_name;
    if (name.size() <= kSuffix.size() || !name.ends_with(kSuffix)) continue;
    names.emplace_back(name.substr(0, name.size() - kSuffix.size()));
  }
  closedir(dir);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::string run_dir() { return client_run_dir(); }

std::string socket_path(const std::string& device) { return run_dir() + "/" + device + ".sock"; }

std::vector<std::string> list_devices(int* error) {
  int unknown = 0;
  std::vector<std::string> names = candidates(unknown);
  // Names that are too long for ibv_device::name, or that lead out of the run directory, are not devices.
  std::erase_if(names, [&unknown](const std::string& name) {
    return name.size() > 31 || name.find('/') != std::string::npos || !answers(socket_path(name), unknown);
  });
  if (error != nullptr) *error = unknown;
  return names;
}

std::string device_file(const std::string& device, const std::string& file) {
  const std::string path = run_dir() + "/sys/class/infiniband/" + device + "/" + file;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  char text[256];
  const ssize_t n = ::read(fd, text, sizeof(text));
  ::close(fd);
  if (n <= 0) return {};
  const std::string_view all(text, static_cast<std::size_t>(n));
  return std::string(all.substr(0, all.find('\n')));
}

}  // namespace uroce::client
