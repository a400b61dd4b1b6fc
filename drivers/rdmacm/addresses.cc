// Socket addresses.
#include <arpa/inet.h>

#include <cstring>

#include "export.h"
#include "objects.h"

namespace uroce::rdmacm {
namespace {

const sockaddr_in* ip4(const sockaddr* address) { return reinterpret_cast<const sockaddr_in*>(address); }
const sockaddr_in6* ip6(const sockaddr* address) { return reinterpret_cast<const sockaddr_in6*>(address); }

}  // namespace

socklen_t bytes_of(const sockaddr* address) {
  if (address == nullptr) return 0;
  if (address->sa_family == AF_INET) return sizeof(sockaddr_in);
  return address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : 0;
}

bool is_any(const sockaddr* address) {
  if (address->sa_family == AF_INET) return ip4(address)->sin_addr.s_addr == INADDR_ANY;
  return IN6_IS_ADDR_UNSPECIFIED(&ip6(address)->sin6_addr);
}

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) return ntohl(ip4(address)->sin_addr.s_addr) >> 24 == 127;
  return IN6_IS_ADDR_LOOPBACK(&ip6(address)->sin6_addr);
}

std::uint16_t port_of(const sockaddr* address) {
  if (address->sa_family == AF_INET) return ntohs(ip4(address)->sin_port);
  return address->sa_family == AF_INET6 ? ntohs(ip6(address)->sin6_port) : 0;
}

uroce_cm_address to_abi(const sockaddr* address) {
  uroce_cm_address out{};
  out.family = address->sa_family;
  out.port = port_of(address);
  if (address->sa_family == AF_INET) {
    out.gid[10] = out.gid[11] = 0xff;
    std::memcpy(out.gid + 12, &ip4(address)->sin_addr, 4);
  } else {
    std::memcpy(out.gid, &ip6(address)->sin6_addr, 16);
    out.scope = ip6(address)->sin6_scope_id;
  }
  return out;
}

void from_abi(const uroce_cm_address& from, sockaddr_storage& to) {
  to = {};
  if (from.family == AF_INET) {
    auto& address = reinterpret_cast<sockaddr_in&>(to);
    address.sin_family = AF_INET;
    address.sin_port = htons(from.port);
    std::memcpy(&address.sin_addr, from.gid + 12, 4);
  } else if (from.family == AF_INET6) {
    auto& address = reinterpret_cast<sockaddr_in6&>(to);
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(from.port);
    address.sin6_scope_id = from.scope;
    std::memcpy(&address.sin6_addr, from.gid, 16);
  }
}

}  // namespace uroce::rdmacm

UROCE_EXPORT __be16 rdma_get_src_port(rdma_cm_id* id) {
  return htons(uroce::rdmacm::port_of(&id->route.addr.src_addr));
}
UROCE_EXPORT __be16 rdma_get_dst_port(rdma_cm_id* id) {
  return htons(uroce::rdmacm::port_of(&id->route.addr.dst_addr));
}
