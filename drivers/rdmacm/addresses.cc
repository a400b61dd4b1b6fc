// Conversion of socket addresses.
#include <arpa/inet.h>
#include <infiniband/ib.h>

#include <cstring>

#include "export.h"
#include "objects.h"

namespace uroce::rdmacm {
namespace {

constexpr std::uint64_t kPortSpaceBits = 0xffff'ffff'ffff'0000;  // of a service ID; the low 16 bits are the port

const sockaddr_ib* ib(const sockaddr* address) { return reinterpret_cast<const sockaddr_ib*>(address); }
const in6_addr* gid_of(const sockaddr* address) {
  return reinterpret_cast<const in6_addr*>(ib(address)->sib_addr.sib_raw);
}
const sockaddr_in* ip4(const sockaddr* address) { return reinterpret_cast<const sockaddr_in*>(address); }
const sockaddr_in6* ip6(const sockaddr* address) { return reinterpret_cast<const sockaddr_in6*>(address); }

}  // namespace

socklen_t bytes_of(const sockaddr* address) {
  if (address == nullptr) return 0;
  if (address->sa_family == AF_INET) return sizeof(sockaddr_in);
  if (address->sa_family == AF_INET6) return sizeof(sockaddr_in6);
  return address->sa_family == AF_IB ? sizeof(sockaddr_ib) : 0;
}

bool is_any(const sockaddr* address) {
  if (address->sa_family == AF_INET) return ip4(address)->sin_addr.s_addr == INADDR_ANY;
  if (address->sa_family == AF_IB) {
    const in6_addr* gid = gid_of(address);
    return IN6_IS_ADDR_UNSPECIFIED(gid) || (IN6_IS_ADDR_V4MAPPED(gid) && gid->s6_addr32[3] == 0);
  }
  return IN6_IS_ADDR_UNSPECIFIED(&ip6(address)->sin6_addr);
}

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) return ntohl(ip4(address)->sin_addr.s_addr) >> 24 == 127;
  if (address->sa_family == AF_IB) return IN6_IS_ADDR_LOOPBACK(gid_of(address));
  return IN6_IS_ADDR_LOOPBACK(&ip6(address)->sin6_addr);
}

std::uint16_t port_of(const sockaddr* address) {
  if (address->sa_family == AF_INET) return ntohs(ip4(address)->sin_port);
  if (address->sa_family == AF_IB) return static_cast<std::uint16_t>(be64toh(ib(address)->sib_sid));
  return address->sa_family == AF_INET6 ? ntohs(ip6(address)->sin6_port) : 0;
}

uroce_cm_address to_abi(const sockaddr* address) {
  uroce_cm_address out{};
  out.family = address->sa_family;
  out.port = port_of(address);
  if (address->sa_family == AF_INET) {
    out.gid[10] = out.gid[11] = 0xff;
    std::memcpy(out.gid + 12, &ip4(address)->sin_addr, 4);
  } else if (address->sa_family == AF_IB) {
    out.family = IN6_IS_ADDR_V4MAPPED(gid_of(address)) ? AF_INET : AF_INET6;
    std::memcpy(out.gid, gid_of(address), 16);
    out.scope = static_cast<std::uint32_t>(ib(address)->sib_scope_id);
  } else {
    std::memcpy(out.gid, &ip6(address)->sin6_addr, 16);
    out.scope = ip6(address)->sin6_scope_id;
  }
  return out;
}

uroce_cm_address to_bindable(const sockaddr* address) {
  uroce_cm_address out = to_abi(address);
  if (!is_loopback(address)) return out;
  std::memset(out.gid, 0, sizeof(out.gid));
  if (out.family == AF_INET) out.gid[10] = out.gid[11] = 0xff;
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

bool in_port_space(const sockaddr* address, rdma_port_space space) {
  if (address->sa_family != AF_IB) return true;
  const std::uint64_t said = be64toh(ib(address)->sib_sid_mask) & kPortSpaceBits;
  return (be64toh(ib(address)->sib_sid) & said) == (std::uint64_t{space} << 16 & said);
}

void to_gid_address(const uroce_cm_address& from, rdma_port_space space, sockaddr_storage& to) {
  to = {};
  auto& address = reinterpret_cast<sockaddr_ib&>(to);
  address.sib_family = AF_IB;
  address.sib_pkey = htobe16(0xffff);
  std::memcpy(address.sib_addr.sib_raw, from.gid, 16);
  address.sib_sid = htobe64(std::uint64_t{space} << 16 | from.port);
  address.sib_sid_mask = ~__be64{0};
  address.sib_scope_id = from.scope;
}

void to_program_address(const CmId& id, const uroce_cm_address& from, sockaddr_storage& to) {
  if (id.gid_addresses) return to_gid_address(from, id.id.ps, to);
  from_abi(from, to);
}

}  // namespace uroce::rdmacm

UROCE_EXPORT __be16 rdma_get_src_port(rdma_cm_id* id) {
  return htons(uroce::rdmacm::port_of(&id->route.addr.src_addr));
}
UROCE_EXPORT __be16 rdma_get_dst_port(rdma_cm_id* id) {
  return htons(uroce::rdmacm::port_of(&id->route.addr.dst_addr));
}
