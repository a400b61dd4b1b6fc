#include "drivers/packet/dpdk/queue_sockets.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <string>
#include <system_error>

namespace uroce::dpdk {
namespace {

/// Of this process, in order. Empty without procfs.
std::vector<int> sockets_of(int family) {
  std::vector<int> sockets;
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename();
    int fd = -1, domain = AF_UNSPEC;
    socklen_t length = sizeof domain;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == family) sockets.push_back(fd);
  }
  std::ranges::sort(sockets);
  return sockets;
}

}  // namespace

QueueSockets::QueueSockets(int family) : family_(family) {
  if (family_ != AF_UNSPEC) before_ = known_ = sockets_of(family_);
}

void QueueSockets::look() {
  if (family_ == AF_UNSPEC) return;
  std::vector<int> now = sockets_of(family_);
  std::ranges::set_difference(now, known_, std::back_inserter(found_));
  known_ = std::move(now);
}

void QueueSockets::close_left() {
  if (family_ == AF_UNSPEC) return;
  for (const int fd : sockets_of(family_)) {
    if (!std::ranges::binary_search(before_, fd)) ::close(fd);
  }
}

}  // namespace uroce::dpdk
