#include "control/link/kernel_addresses.h"

#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "platform/log.h"
#include "wire/address.h"
#include "wire/network_headers.h"

namespace uroce::control {
namespace {

struct SocketAddress {
  SocketAddress(const wire::Address& address, std::uint16_t port, std::uint32_t interface) {
    if (address.is_v4()) {
      auto& to = reinterpret_cast<sockaddr_in&>(storage);
      to.sin_family = AF_INET;
      to.sin_port = htons(port);
      std::memcpy(&to.sin_addr, address.bytes.data() + 12, 4);
      bytes = sizeof(to);
    } else {
      auto& to = reinterpret_cast<sockaddr_in6&>(storage);
      to.sin6_family = AF_INET6;
      to.sin6_port = htons(port);
      std::memcpy(&to.sin6_addr, address.bytes.data(), 16);
      if (address.is_link_local()) to.sin6_scope_id = interface;
      bytes = sizeof(to);
    }
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  wire::Address address() const {
    wire::Address out;
    if (storage.ss_family == AF_INET) {
      out.bytes[10] = out.bytes[11] = 0xff;
      std::memcpy(out.bytes.data() + 12, &reinterpret_cast<const sockaddr_in&>(storage).sin_addr, 4);
    } else {
      std::memcpy(out.bytes.data(), &reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr, 16);
    }
    return out;
  }
  sockaddr_storage storage{};
  socklen_t bytes = 0;
};

UniqueFd udp_socket(const wire::Address& address) {
  return UniqueFd(::socket(address.is_v4() ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

}  // namespace

bool KernelAddresses::kernel_has(const wire::Address& address) const {
  // What is sent to an own address comes from it. That it can be bound to proves nothing: any can in a network
  // namespace that never had an IPv4 address, and with ip_nonlocal_bind.
  const UniqueFd fd = udp_socket(address);
  const SocketAddress to(address, wire::kRoceUdpPort, interface_);
  if (!fd.valid() || ::connect(fd.get(), to.get(), to.bytes) != 0) return false;
  SocketAddress from(address, 0, 0);
  return ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&from.storage), &from.bytes) == 0 &&
         from.address() == address;
}

UniqueFd KernelAddresses::bound_socket(const wire::Address& address, std::uint16_t port) const {
  UniqueFd fd = udp_socket(address);
  if (!fd.valid()) return fd;
  // Attached before bind, so that no datagram is ever queued.
  sock_filter drop_all = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog program{1, &drop_all};
  if (::setsockopt(fd.get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) != 0) return UniqueFd();
  const SocketAddress to(address, port, interface_);
  return ::bind(fd.get(), to.get(), to.bytes) == 0 ? std::move(fd) : UniqueFd();
}

bool KernelAddresses::refresh(std::span<const net::InterfaceAddress> ours) {
  if (interface_ == 0) return false;
  bool changed = std::erase_if(sockets_, [&](const auto& entry) {
                   return std::ranges::find(ours, entry.first, &net::InterfaceAddress::address) == ours.end();
                 }) != 0;
  for (const net::InterfaceAddress& own : ours) {
    const bool has = kernel_has(own.address);
    if (has == sockets_.contains(own.address)) continue;
    changed = true;
    if (!has) {
      sockets_.erase(own.address);
      continue;
    }
    UniqueFd& fd = sockets_[own.address];
    fd = bound_socket(own.address, wire::kRoceUdpPort);
    if (!fd.valid()) {
      platform::log(platform::LogLevel::kDebug,
                    "UDP port %u of an address of the port is bound by another program: %s",
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

}  // namespace uroce::control
