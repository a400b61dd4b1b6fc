#include "drivers/packet/dpdk/kernel_share.h"

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <span>

namespace uroce::dpdk {
namespace {

constexpr unsigned char kObject[] = {
#include "drivers/packet/dpdk/xdp/roce_steering.inc"
};
constexpr char kProgramName[] = "uroce_steering";  // in the object
constexpr std::size_t kAddresses = 2 * ETH_ALEN;   // of the Ethernet header, in front of a tag
constexpr std::size_t kTag = 4;

std::string failed(const char* what) { return std::string(what) + ": " + std::strerror(errno); }

/// Name of the XDP program on an interface; empty: none.
std::string attached(unsigned interface) {
  std::uint32_t id = 0;
  if (::bpf_xdp_query_id(static_cast<int>(interface), 0, &id) != 0 || id == 0) return {};
  const int fd = ::bpf_prog_get_fd_by_id(id);
  if (fd < 0) return "number " + std::to_string(id);
  bpf_prog_info info{};
  std::uint32_t length = sizeof(info);
  const int result = ::bpf_obj_get_info_by_fd(fd, &info, &length);
  ::close(fd);
  return result == 0 ? info.name : "number " + std::to_string(id);
}

int attach(int fd, std::span<sock_filter> filter) {
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  return ::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}

/// ARP, ICMP, IGMP, ICMPv6, and IPv6 with options (MLD uses them). A VLAN tag is not part of the bytes.
int attach_filter(int fd) {
  sock_filter wanted[] = {BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 12),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETHERTYPE_ARP, 8, 0),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETHERTYPE_IP, 0, 3),
                          BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 14 + 9),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_ICMP, 5, 0),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_IGMP, 4, 5),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETHERTYPE_IPV6, 0, 4),
                          BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 14 + 6),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_ICMPV6, 1, 0),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_HOPOPTS, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, 65535),
                          BPF_STMT(BPF_RET | BPF_K, 0)};
  return attach(fd, wanted);
}

}  // namespace

std::unique_ptr<KernelShare> KernelShare::open(const std::string& interface, std::string& error) {
  std::unique_ptr<KernelShare> self(new KernelShare());
  self->index_ = ::if_nametoindex(interface.c_str());
  if (self->index_ == 0) {
    error = "iface=" + interface + ": there is no such interface (see ip link)";
    return nullptr;
  }
  error = self->claim(interface);
  if (error.empty()) error = self->open_object();
  if (error.empty()) error = self->open_packets();
  return error.empty() ? std::move(self) : nullptr;
}

KernelShare::~KernelShare() {
  for (const int fd : {claim_, object_, packets_}) {
    if (fd >= 0) ::close(fd);
  }
}

/// An abstract socket name is unique in the network namespace, as the interface is, and is released with its owner.
std::string KernelShare::claim(const std::string& interface) {
  claim_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (claim_ < 0) return failed("socket");
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string text = "uroce-xdp-" + std::to_string(index_);
  text.copy(name.sun_path + 1, sizeof(name.sun_path) - 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  if (::bind(claim_, reinterpret_cast<const sockaddr*>(&name), length) != 0) {
    return errno == EADDRINUSE ? "iface=" + interface + " is another daemon's: end it, or take another interface"
                               : failed("bind");
  }
  const std::string there = attached(index_);
  if (there == kProgramName) {  // and no process has claimed the interface
    if (const int result = ::bpf_xdp_detach(static_cast<int>(index_), 0, nullptr); result != 0) {
      return std::string("the program of a daemon that ended can't be taken off: ") + std::strerror(-result);
    }
  } else if (!there.empty()) {
    return "iface=" + interface + " has an XDP program, " + there + ": take it off (ip link set dev " + interface +
           " xdp off), or use net_af_packet0,iface=" + interface;
  }
  return {};
}

std::string KernelShare::open_object() {
  object_ = ::memfd_create("uroce-xdp", MFD_CLOEXEC);
  if (object_ < 0) return failed("memfd_create");
  const ssize_t written = ::write(object_, kObject, sizeof(kObject));
  return written == static_cast<ssize_t>(sizeof(kObject)) ? std::string() : failed("memfd");
}

std::string KernelShare::open_packets() {
  packets_ = ::socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (packets_ < 0) return failed("packet socket");
  const int on = 1;
  sockaddr_ll where{};
  where.sll_family = AF_PACKET;
  where.sll_protocol = htons(ETH_P_ALL);
  where.sll_ifindex = static_cast<int>(index_);
  if (attach_filter(packets_) != 0 || ::setsockopt(packets_, SOL_PACKET, PACKET_AUXDATA, &on, sizeof(on)) != 0 ||
      ::setsockopt(packets_, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on)) != 0 ||
      ::bind(packets_, reinterpret_cast<const sockaddr*>(&where), sizeof(where)) != 0) {
    return failed("packet socket");
  }
  return {};
}

std::string KernelShare::program() const { return "/proc/self/fd/" + std::to_string(object_); }

void KernelShare::show_all(bool all) {
  if (!all) {
    attach_filter(packets_);
    return;
  }
  // receive() is called 5,000 times a second.
  const int bytes = 4 << 20;
  ::setsockopt(packets_, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes));
  sock_filter everything[] = {BPF_STMT(BPF_RET | BPF_K, 65535)};
  attach(packets_, everything);
}

std::size_t KernelShare::receive(std::span<std::byte> to) {
  // Leave a gap for the VLAN tag, which the kernel delivers separately (PACKET_AUXDATA, packet(7)).
  if (to.size() <= kAddresses + kTag) return 0;
  iovec parts[] = {{to.data(), kAddresses}, {to.data() + kAddresses + kTag, to.size() - kAddresses - kTag}};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(tpacket_auxdata))];
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = std::size(parts);
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t length = 0;
  do {
    length = ::recvmsg(packets_, &message, 0);
    if (length < 0) return 0;
  } while ((message.msg_flags & MSG_TRUNC) != 0 || length <= static_cast<ssize_t>(kAddresses));
  const auto bytes = static_cast<std::size_t>(length);
  std::byte* const type = to.data() + kAddresses;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_PACKET || header->cmsg_type != PACKET_AUXDATA) continue;
    tpacket_auxdata beside{};
    std::memcpy(&beside, CMSG_DATA(header), sizeof(beside));
    if ((beside.tp_status & TP_STATUS_VLAN_VALID) == 0) break;
    const bool named = (beside.tp_status & TP_STATUS_VLAN_TPID_VALID) != 0;
    const std::uint16_t kind = named ? beside.tp_vlan_tpid : std::uint16_t{ETHERTYPE_VLAN};
    const std::uint16_t tag[] = {htons(kind), htons(beside.tp_vlan_tci)};
    std::memcpy(type, tag, sizeof(tag));
    return bytes + kTag;
  }
  std::memmove(type, type + kTag, bytes - kAddresses);
  return bytes;
}

}  // namespace uroce::dpdk
