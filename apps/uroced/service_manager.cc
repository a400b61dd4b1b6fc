#include "apps/uroced/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

namespace uroce::uroced {
namespace {

std::string taken(const char* name) {
  const char* const value = std::getenv(name);
  std::string text = value != nullptr ? value : "";
  ::unsetenv(name);
  return text;
}

int connect_to(const std::string& path) {
  sockaddr_un address{};
  if (path.size() < 2 || path.size() >= sizeof(address.sun_path) || (path[0] != '/' && path[0] != '@')) return -1;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  if (path[0] == '@') address.sun_path[0] = '\0';  // an abstract address
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  if (fd >= 0 && ::connect(fd, reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    ::close(fd);
    return -1;
  }
  return fd;
}

}  // namespace

ServiceManager::ServiceManager() : socket_(connect_to(taken("NOTIFY_SOCKET"))) {
  const std::string pid = taken("WATCHDOG_PID"), interval = taken("WATCHDOG_USEC");
  const bool ours = pid.empty() || pid == std::to_string(::getpid());
  const long long us = std::atoll(interval.c_str());
  if (socket_ >= 0 && ours && us > 0) watchdog_ = static_cast<Nanos>(us) * kMicrosecond;
}

ServiceManager::~ServiceManager() {
  if (socket_ >= 0) ::close(socket_);
}

void ServiceManager::notify(std::string_view state) const {
  if (socket_ >= 0) static_cast<void>(::send(socket_, state.data(), state.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
}

}  // namespace uroce::uroced
