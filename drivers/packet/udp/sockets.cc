#include "drivers/packet/udp/sockets.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/filter.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>

#include "base/qpn_layout.h"
#include "wire/network_headers.h"

#ifndef UDP_GRO
#define UDP_GRO 104
#endif

namespace uroce::udp {
namespace {

constexpr int kNoCheck6Rx = 102;          // UDP_NO_CHECK6_RX (linux/udp.h)
constexpr int kBufferBytes = 4 << 20;     // the kernel lowers it to net.core.rmem_max and wmem_max
constexpr std::uint32_t kQpnTopByte = 5;  // of the BTH, from its start
constexpr std::uint32_t kBitsBelowWorker = kQpnLocalBits - 16;  // in that byte
constexpr auto kPatience = std::chrono::seconds(3);

struct Option {
  std::string_view text;
  std::optional<bool> gso;
  std::optional<IdCheck> ids;
};
constexpr std::array<Option, 5> kOptions{{{"gso=on", true, {}},
                                          {"gso=off", false, {}},
                                          {"id=count", {}, IdCheck::kCount},
                                          {"id=zero", {}, IdCheck::kZero},
                                          {"id=any", {}, IdCheck::kAny}}};

struct Interface {
  std::string name;
  std::uint32_t mtu = 0;
};

std::string text_of(const wire::Address& address) {
  char text[INET6_ADDRSTRLEN] = {};
  const int family = address.is_v4() ? AF_INET : AF_INET6;
  ::inet_ntop(family, address.bytes.data() + (address.is_v4() ? 12 : 0), text, sizeof(text));
  return text;
}

std::optional<wire::Address> address_of(const sockaddr* from) {
  if (from == nullptr) return std::nullopt;
  if (from->sa_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, from, sizeof(v4));
    return wire::load_ipv4(reinterpret_cast<const std::byte*>(&v4.sin_addr));
  }
  if (from->sa_family != AF_INET6) return std::nullopt;
  sockaddr_in6 v6;
  std::memcpy(&v6, from, sizeof(v6));
  return wire::load_ipv6(reinterpret_cast<const std::byte*>(&v6.sin6_addr));
}

std::uint32_t mtu_of(const std::string& interface) {
  const Socket socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strncpy(request.ifr_name, interface.c_str(), IFNAMSIZ - 1);
  return ::ioctl(socket.get(), SIOCGIFMTU, &request) == 0 ? static_cast<std::uint32_t>(request.ifr_mtu) : 0;
}

/// Whether `address` is in the prefix of the IPv4 loopback interface, all of whose addresses are local.
bool is_on_loopback(const ifaddrs& interface, const wire::Address& address) {
  const auto own = address_of(interface.ifa_addr), mask = address_of(interface.ifa_netmask);
  if ((interface.ifa_flags & IFF_LOOPBACK) == 0 || !own || !mask || !own->is_v4() || !address.is_v4()) return false;
  for (std::size_t i = 12; i < 16; ++i) {
    if (((own->bytes[i] ^ address.bytes[i]) & mask->bytes[i]) != 0) return false;
  }
  return true;
}

/// The interface that has `address`, or why there is none.
std::string find_interface(const wire::Address& address, Interface& out) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0)
    return std::string("can't list the addresses of interfaces: ") + std::strerror(errno);
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::string others;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    const auto own = address_of(each->ifa_addr);
    if (own == address || is_on_loopback(*each, address)) {
      out = {each->ifa_name, mtu_of(each->ifa_name)};
      return {};
    }
    if (own && (each->ifa_flags & IFF_LOOPBACK) == 0) others += (others.empty() ? "" : ", ") + text_of(*own);
  }
  return "no interface has the address " + text_of(address) + "; add it (ip address add " + text_of(address) +
         "/BITS dev INTERFACE)" + (others.empty() ? "" : ", or give --ip one of " + others);
}

bool set(int fd, int level, int name, int value) {
  return ::setsockopt(fd, level, name, &value, sizeof(value)) == 0;
}

/// Names an option that the kernel refuses; empty: it took all that are needed.
std::string set_options(int fd, bool v4) {
  bool done = true;
  if (v4) {
    done = set(fd, SOL_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO) && set(fd, SOL_IP, IP_RECVTOS, 1) &&
           set(fd, SOL_IP, IP_RECVTTL, 1);
  } else {
    done = set(fd, SOL_IPV6, IPV6_V6ONLY, 1) && set(fd, SOL_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO) &&
           set(fd, SOL_IPV6, IPV6_RECVTCLASS, 1) && set(fd, SOL_IPV6, IPV6_RECVHOPLIMIT, 1);
    set(fd, SOL_UDP, kNoCheck6Rx, 1);  // RoCE's own sum is enough, and other stacks send no UDP checksum
  }
  if (!done) return std::string("can't set up a UDP socket: ") + std::strerror(errno);
  set(fd, SOL_UDP, UDP_GRO, 1);  // Linux 5.0; without it each packet is received alone
  set(fd, SOL_SOCKET, SO_RCVBUF, kBufferBytes);
  set(fd, SOL_SOCKET, SO_SNDBUF, kBufferBytes);
  return {};
}

int bind_to(int fd, const Endpoint& endpoint) {
  if (endpoint.address.is_v4()) {
    sockaddr_in v4{.sin_family = AF_INET, .sin_port = htons(wire::kRoceUdpPort), .sin_addr = {}, .sin_zero = {}};
    std::memcpy(&v4.sin_addr, endpoint.address.bytes.data() + 12, 4);
    return ::bind(fd, reinterpret_cast<const sockaddr*>(&v4), sizeof(v4));
  }
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(wire::kRoceUdpPort);
  v6.sin6_scope_id = endpoint.scope;
  std::memcpy(&v6.sin6_addr, endpoint.address.bytes.data(), 16);
  return ::bind(fd, reinterpret_cast<const sockaddr*>(&v6), sizeof(v6));
}

std::string why_not_bound(const wire::Address& address) {
  const std::string what = "can't bind UDP port 4791 of " + text_of(address);
  if (errno == EADDRINUSE) {
    return what +
           ": another program has it; stop it (another uroced with this address, or rdma_rxe: rdma link delete), "
           "or give another --ip";
  }
  if (errno == EADDRNOTAVAIL) return what + ": the kernel does not let it be used yet; see ip address show";
  return what + ": " + std::strerror(errno);
}

/// The first socket is bound while it does not share its port, so that another daemon's address is not shared with
/// it.
std::string open_one(Endpoint& endpoint, bool first, bool shared) {
  const bool v4 = endpoint.address.is_v4();
  endpoint.socket.reset(::socket(v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int fd = endpoint.socket.get();
  if (fd < 0) return std::string("can't open a UDP socket: ") + std::strerror(errno);
  if (std::string error = set_options(fd, v4); !error.empty()) return error;
  if (!first && !set(fd, SOL_SOCKET, SO_REUSEPORT, 1)) return std::string("SO_REUSEPORT: ") + std::strerror(errno);
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  while (bind_to(fd, endpoint) != 0) {
    if (errno != EADDRNOTAVAIL || v4 || std::chrono::steady_clock::now() > give_up)
      return why_not_bound(endpoint.address);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  if (first && shared && !set(fd, SOL_SOCKET, SO_REUSEPORT, 1))
    return std::string("SO_REUSEPORT: ") + std::strerror(errno);
  return {};
}

/// The kernel passes the payload, which begins with the BTH. It takes the number as that of a socket, in the order
/// in which they were bound; for one too large it chooses by a hash, and the worker passes the packet on.
bool steer_by_qpn(int fd) {
  sock_filter code[] = {BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kQpnTopByte),
                        BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, kBitsBelowWorker), BPF_STMT(BPF_RET | BPF_A, 0)};
  const sock_fprog program{std::size(code), code};
  return ::setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof(program)) == 0;
}

}  // namespace

bool is_udp(std::string_view port) { return port == "udp" || port.starts_with("udp,"); }

std::string parse_spec(std::string_view port, PortSpec& out) {
  std::string_view rest = port.substr(std::min(port.find(','), port.size()));
  while (!rest.empty()) {
    rest.remove_prefix(1);
    const std::string_view option = rest.substr(0, rest.find(','));
    rest.remove_prefix(option.size());
    const auto* const found = std::ranges::find(kOptions, option, &Option::text);
    if (found == kOptions.end()) {
      return "--port \"" + std::string(port) + "\": \"" + std::string(option) +
             "\" is not an option of udp; there are gso=on and gso=off, id=count, id=zero and id=any, as in "
             "udp,gso=off,id=zero";
    }
    if (found->gso) out.gso = *found->gso;
    if (found->ids) out.ids = *found->ids;
  }
  return {};
}

std::string open_sockets(const std::vector<wire::Address>& addresses, std::uint32_t queues, Sockets& out) {
  out.queues.resize(queues);
  for (const wire::Address& address : addresses) {
    Interface interface;
    if (std::string error = find_interface(address, interface); !error.empty()) return error;
    const std::uint32_t index = ::if_nametoindex(interface.name.c_str());
    if (out.interface == 0) out.interface = index;
    out.mtu = out.mtu == 0 ? interface.mtu : std::min(out.mtu, interface.mtu);
    const bool link_local = address.bytes[0] == 0xfe && (address.bytes[1] & 0xc0) == 0x80;
    for (std::uint32_t queue = 0; queue < queues; ++queue) {
      Endpoint endpoint{.address = address, .scope = link_local ? index : 0, .socket = Socket()};
      if (std::string error = open_one(endpoint, queue == 0, queues > 1); !error.empty()) return error;
      if (queue == 1 && !steer_by_qpn(endpoint.socket.get())) {
        return std::string("SO_ATTACH_REUSEPORT_CBPF: ") + std::strerror(errno) + "; use --workers 1";
      }
      out.queues[queue].push_back(std::move(endpoint));
    }
  }
  return {};
}

}  // namespace uroce::udp
