#include "control/kernel_addresses.h"

#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "platform/log.h"
#include "wire/address.h"
#include "wire/network_headers.h"

namespace uroce::daemon {

UniqueFd KernelAddresses::bound_socket(const wire::Address& address, std::uint16_t port) const {
  const bool v4 = address.is_v4();
  UniqueFd fd(::socket(v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return fd;
  // Attached before bind, so that no datagram is ever queued.
  sock_filter drop_all = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog program{1, &drop_all};
  if (::setsockopt(fd.get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) != 0) return UniqueFd();
  sockaddr_in to4{};
  sockaddr_in6 to6{};
  to4.sin_family = AF_INET;
  to4.sin_port = htons(port);
  std::memcpy(&to4.sin_addr, address.bytes.data() + 12, 4);
  to6.sin6_family = AF_INET6;
  to6.sin6_port = htons(port);
  std::memcpy(&to6.sin6_addr, address.bytes.data(), 16);
  if (IN6_IS_ADDR_LINKLOCAL(&to6.sin6_addr)) to6.sin6_scope_id = interface_;
  const int result = v4 ? ::bind(fd.get(), reinterpret_cast<sockaddr*>(&to4), sizeof(to4))
                        : ::bind(fd.get(), reinterpret_cast<sockaddr*>(&to6), sizeof(to6));
  return result == 0 ? std::move(fd) : UniqueFd();
}

bool KernelAddresses::refresh(std::span<const net::InterfaceAddress> ours) {
  if (interface_ == 0) return false;
  bool changed = std::erase_if(sockets_, [&](const auto& entry) {
                   return std::ranges::find(ours, entry.first, &net::InterfaceAddress::address) == ours.end();
                 }) != 0;
  for (const net::InterfaceAddress& own : ours) {
    // Only an address that the kernel has can be bound to, any port will do.
    const bool has = bound_socket(own.address, 0).valid();
    if (has == sockets_.contains(own.address)) continue;
    changed = true;
    if (!has) {
      sockets_.erase(own.address);
      continue;
    }
    UniqueFd& fd = sockets_[own.address];
    fd = bound_socket(own.address, wire::kRoceUdpPort);
    if (!fd.valid()) {
      log(LogLevel::kDebug, "UDP port %u of an address of the port is bound by another program: %s",
          unsigned{wire::kRoceUdpPort}, std::strerror(errno));
    }
  }
  return changed;
}

std::vector<wire::Address> KernelAddresses::shared() const {
  std::vector<wire::Address> all;
  for (const auto& [address, fd] : sockets_) all.push_back(address);
  return all;
}

}  // namespace uroce::daemon
