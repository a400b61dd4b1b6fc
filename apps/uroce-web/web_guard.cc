#include "web_guard.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <filesystem>

#include "platform/unique_fd.h"

namespace uroce::ctl {
namespace {

constexpr std::chrono::seconds kMostTime{5};
constexpr std::uint64_t kMostBytes = 16384;

/// "ADDRESS PORT" of the other end; empty: the descriptor is not a TCP connection.
std::string peer_of(int socket) {
  sockaddr_storage peer{};
  socklen_t bytes = sizeof peer;
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &bytes) != 0) return {};
  char text[INET6_ADDRSTRLEN] = "";
  std::uint16_t port = 0;
  if (peer.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&peer);
    ::inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
    port = ntohs(v4->sin_port);
  } else if (peer.ss_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&peer);
    ::inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
    port = ntohs(v6->sin6_port);
  } else {
    return {};
  }
  return std::string(text) + " " + std::to_string(port);
}

std::uint64_t bytes_received(int socket) {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return 0;
  return bytes > offsetof(tcp_info, tcpi_bytes_received) ? info.tcpi_bytes_received : 0;
}

}  // namespace

template <typename End>
void ConnectionGuard::visit(Clock::time_point now, const End& end) {
  for (auto& [inode, each] : connections_) each.seen = false;
  std::error_code error;
  // What cannot be looked at is as it was.
  for (std::filesystem::directory_iterator at("/proc/self/fd", error), last; !error && at != last;
       at.increment(error)) {
    const std::string name = at->path().filename();
    int number = -1;
    if (std::from_chars(name.data(), name.data() + name.size(), number).ec != std::errc{}) continue;
    // A descriptor of its own names the same socket for as long as it is looked at.
    const UniqueFd socket(::fcntl(number, F_DUPFD_CLOEXEC, 0));
    struct stat status {};
    if (!socket.valid() && errno != EBADF) return;
    if (!socket.valid() || ::fstat(socket.get(), &status) != 0 || !S_ISSOCK(status.st_mode)) continue;
    std::string peer = peer_of(socket.get());
    if (peer.empty()) continue;
    const auto [place, is_new] = connections_.try_emplace(status.st_ino, Connection{now, std::move(peer)});
    Connection& connection = place->second;
    connection.seen = true;
    if (connection.ended || !end(status.st_ino, connection, socket.get())) continue;
    connection.ended = true;
    ::shutdown(socket.get(), SHUT_RDWR);
  }
  if (error) return;
  std::erase_if(connections_, [](const auto& each) { return !each.second.seen; });
}

void ConnectionGuard::trust(const std::string& address, int port) {
  const std::string peer = address + " " + std::to_string(port);
  const std::lock_guard lock(mutex_);
  visit(Clock::now(), [&](ino_t, Connection& each, int) {
    each.trusted |= each.peer == peer;
    return false;
  });
}

void ConnectionGuard::sweep(Clock::time_point now) {
  if (!any_) return;
  const std::lock_guard lock(mutex_);
  visit(now, [&](ino_t, const Connection& each, int socket) {
    return !each.trusted && (now - each.since > kMostTime || bytes_received(socket) > kMostBytes);
  });
}

bool ConnectionGuard::end_oldest() {
  const std::lock_guard lock(mutex_);
  visit(Clock::now(), [](ino_t, const Connection&, int) { return false; });
  const auto older = [](const auto& a, const auto& b) { return a.second.since < b.second.since; };
  auto oldest = connections_.end();
  for (auto it = connections_.begin(); it != connections_.end(); ++it) {
    if (it->second.trusted || it->second.ended) continue;
    if (oldest == connections_.end() || older(*it, *oldest)) oldest = it;
  }
  if (oldest == connections_.end()) return false;
  visit(Clock::now(), [&](ino_t inode, const Connection&, int) { return inode == oldest->first; });
  return true;
}

}  // namespace uroce::ctl
