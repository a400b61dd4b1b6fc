#include "drivers/packet/udp/transmitter.h"

#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/qpn_layout.h"
#include "wire/bth.h"
#include "wire/icrc.h"
#include "wire/network_headers.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

namespace uroce::udp {
namespace {

constexpr std::size_t kEthernet = wire::EthernetHeader::kBytes;
constexpr std::size_t kIp4 = wire::Ipv4Header::kBytes, kIp6 = wire::Ipv6Header::kBytes;
constexpr std::size_t kUdp = wire::UdpHeader::kBytes;
constexpr std::size_t kMostOfRow = 65000;  // bytes of UDP payload; with its headers it is an IP packet
constexpr std::uint8_t kUsualHopLimit = 64;
constexpr std::size_t kControlBytes = 2 * CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(std::uint16_t));

bool is_v4(const base::Frame& frame) { return wire::load16(frame.data + 12) == wire::kEtherTypeIpv4; }
std::byte* ip_of(const base::Frame& frame) { return frame.data + kEthernet; }
std::byte* udp_of(const base::Frame& frame) { return ip_of(frame) + (is_v4(frame) ? kIp4 : kIp6); }
std::byte* payload_of(const base::Frame& frame) { return udp_of(frame) + kUdp; }
std::size_t payload_bytes(const base::Frame& frame) { return wire::load16(udp_of(frame) + 4) - kUdp; }

std::uint8_t traffic_class_of(const base::Frame& frame) {
  const std::byte* ip = ip_of(frame);
  return static_cast<std::uint8_t>(is_v4(frame) ? wire::load8(ip + 1) : wire::load16(ip) >> 4 & 0xff);
}
std::uint8_t hop_limit_of(const base::Frame& frame) { return wire::load8(ip_of(frame) + (is_v4(frame) ? 8 : 7)); }

wire::Address source_of(const base::Frame& frame) {
  return is_v4(frame) ? wire::load_ipv4(ip_of(frame) + 12) : wire::load_ipv6(ip_of(frame) + 8);
}
wire::Address destination_of(const base::Frame& frame) {
  return is_v4(frame) ? wire::load_ipv4(ip_of(frame) + 16) : wire::load_ipv6(ip_of(frame) + 24);
}

/// The worker of a peer that is a daemon, too: its kernel looks at the first packet of a row only.
unsigned queue_of(const base::Frame& frame) { return wire::load8(payload_of(frame) + 5) >> (kQpnLocalBits - 16); }

/// Whether one datagram can carry both: equal addresses, traffic class, hop limit and queue of the peer.
bool same_path(const base::Frame& a, const base::Frame& b) {
  if (std::memcmp(a.data + 12, b.data + 12, 4) != 0 || queue_of(a) != queue_of(b)) return false;  // EtherType first
  const std::byte *x = ip_of(a), *y = ip_of(b);
  if (is_v4(a)) return x[8] == y[8] && std::memcmp(x + 12, y + 12, 8) == 0;
  return std::memcmp(x, y, 4) == 0 && std::memcmp(x + 7, y + 7, 33) == 0;
}

/// One message to sendmmsg(2), and what it points to.
struct Message {
  sockaddr_in6 to;
  alignas(cmsghdr) std::byte control[kControlBytes];
  std::size_t packets;
};

template <class T>
void add_control(msghdr& header, std::byte*& at, int level, int type, T value) {
  auto* message = reinterpret_cast<cmsghdr*>(at);
  message->cmsg_level = level;
  message->cmsg_type = type;
  message->cmsg_len = CMSG_LEN(sizeof(value));
  std::memcpy(CMSG_DATA(message), &value, sizeof(value));
  at += CMSG_SPACE(sizeof(value));
  header.msg_controllen += CMSG_SPACE(sizeof(value));
}

void describe(const base::Frame& first, std::size_t packets, std::uint32_t scope, Message& out, msghdr& header) {
  const bool v4 = is_v4(first);
  out.packets = packets;
  out.to = {};
  if (v4) {
    sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(wire::kRoceUdpPort), .sin_addr = {}, .sin_zero = {}};
    std::memcpy(&to.sin_addr, ip_of(first) + 16, 4);
    std::memcpy(&out.to, &to, sizeof(to));
  } else {
    out.to.sin6_family = AF_INET6;
    out.to.sin6_port = htons(wire::kRoceUdpPort);
    out.to.sin6_scope_id = scope;
    std::memcpy(&out.to.sin6_addr, ip_of(first) + 24, 16);
  }
  header.msg_name = &out.to;
  header.msg_namelen = v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::byte* at = out.control;
  std::memset(out.control, 0, sizeof(out.control));
  const int level = v4 ? SOL_IP : SOL_IPV6;
  if (const int value = traffic_class_of(first); value != 0) {
    add_control(header, at, level, v4 ? IP_TOS : IPV6_TCLASS, value);
  }
  if (const int value = hop_limit_of(first); value != kUsualHopLimit) {
    add_control(header, at, level, v4 ? IP_TTL : IPV6_HOPLIMIT, value);
  }
  if (packets > 1) add_control(header, at, SOL_UDP, UDP_SEGMENT, static_cast<std::uint16_t>(payload_bytes(first)));
  header.msg_control = header.msg_controllen == 0 ? nullptr : out.control;
}

/// The kernel has no room now, or was interrupted; the packets are good.
bool is_busy(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS || error == ENOMEM || error == EINTR;
}

}  // namespace

bool is_roce(const base::Frame& frame) {
  if (frame.length < kEthernet + kIp4 + kUdp) return false;
  const std::uint16_t type = wire::load16(frame.data + 12);
  if (type != wire::kEtherTypeIpv4 && type != wire::kEtherTypeIpv6) return false;
  const std::size_t header = type == wire::kEtherTypeIpv4 ? kIp4 : kIp6;
  if (frame.length < kEthernet + header + kUdp) return false;
  const std::byte* ip = ip_of(frame);
  const std::byte* udp = ip + header;
  const bool plain = type == wire::kEtherTypeIpv4
                         ? wire::load8(ip) == 0x45 && wire::load8(ip + 9) == wire::kProtocolUdp
                         : wire::load8(ip + 6) == wire::kProtocolUdp;
  const std::size_t bytes = wire::load16(udp + 4);
  return plain && wire::load16(udp + 2) == wire::kRoceUdpPort &&
         bytes >= kUdp + wire::kBthBytes + wire::kIcrcBytes && kEthernet + header + bytes <= frame.length;
}

struct Transmitter::Burst {
  Message messages[kBurst];
  mmsghdr headers[kBurst];
  iovec pieces[kBurst];
  std::size_t count = 0;
};

const Endpoint* Transmitter::endpoint_of(const base::Frame& frame) const {
  const wire::Address source = source_of(frame);
  const auto found = std::ranges::find(endpoints_, source, &Endpoint::address);
  return found == endpoints_.end() || destination_of(frame).is_multicast() ? nullptr : &*found;
}

/// How many packets from the front can go as one datagram: of one size, but for the last one.
std::size_t Transmitter::row(std::span<base::Frame> frames) const {
  const std::size_t each = payload_bytes(frames.front());
  const std::size_t most = std::min({frames.size(), std::size_t{IcrcDelta::kIdentifications}, kMostOfRow / each});
  std::size_t count = 1;
  while (gso_ && alone_ == 0 && count < most) {
    const std::size_t bytes = payload_bytes(frames[count]);
    if (bytes > each || !same_path(frames.front(), frames[count])) break;
    ++count;
    if (bytes < each) break;
  }
  return count;
}

void Transmitter::adapt(base::Frame& frame, std::uint16_t identification) {
  std::byte* const udp = udp_of(frame);
  const std::size_t bytes = payload_bytes(frame);
  const std::uint16_t port = wire::load16(udp);
  std::uint32_t change = delta_.of(port ^ wire::kRoceUdpPort, kUdp - 2 + bytes - wire::kIcrcBytes);
  wire::store16(udp, wire::kRoceUdpPort);
  if (is_v4(frame)) {
    std::byte* const field = ip_of(frame) + 4;
    change ^= delta_.of(wire::load16(field) ^ identification, kIp4 - 6 + kUdp + bytes - wire::kIcrcBytes);
    wire::store16(field, identification);
  }
  std::byte* const icrc = udp + kUdp + bytes - wire::kIcrcBytes;
  wire::store_raw(icrc, wire::load_raw<std::uint32_t>(icrc) ^ change);
}

void Transmitter::collect(std::span<base::Frame> frames, const Endpoint& endpoint, Burst& burst) {
  iovec* piece = burst.pieces;
  while (!frames.empty()) {
    const std::size_t packets = row(frames);
    if (alone_ != 0) --alone_;
    msghdr& header = burst.headers[burst.count].msg_hdr;
    header = {};
    header.msg_iov = piece;
    header.msg_iovlen = packets;
    for (std::size_t i = 0; i < packets; ++i) {
      adapt(frames[i], static_cast<std::uint16_t>(i));
      *piece++ = {payload_of(frames[i]), payload_bytes(frames[i])};
    }
    describe(frames.front(), packets, endpoint.scope, burst.messages[burst.count], header);
    ++burst.count;
    frames = frames.subspan(packets);
  }
}

std::size_t Transmitter::send(std::span<base::Frame> frames, net::DeviceCounters& counters) {
  std::size_t done = 0;
  while (done < frames.size()) {
    const Endpoint* const endpoint = endpoint_of(frames[done]);
    if (endpoint == nullptr) {
      ++counters.tx_dropped;
      ++done;
      continue;
    }
    std::size_t end = done + 1;
    while (end < std::min(frames.size(), done + kBurst) && endpoint_of(frames[end]) == endpoint) ++end;
    Burst burst;
    collect(frames.subspan(done, end - done), *endpoint, burst);
    const int sent =
        ::sendmmsg(endpoint->socket.get(), burst.headers, static_cast<unsigned>(burst.count), MSG_DONTWAIT);
    for (std::size_t i = 0; sent > 0 && i < static_cast<std::size_t>(sent); ++i) {
      for (std::size_t left = burst.messages[i].packets; left != 0; --left) {
        ++counters.tx_packets;
        counters.tx_bytes += frames[done++].length;
      }
    }
    if (sent > 0) continue;
    if (is_busy(errno)) break;
    const std::size_t refused = burst.messages[0].packets;
    if (refused > 1) {
      // EIO: the interface computes no checksums. EMSGSIZE, EINVAL: the path carries less, or the kernel fewer.
      gso_ = gso_ && errno != EIO;
      alone_ = refused;
      continue;
    }
    ++counters.tx_dropped;
    ++done;
  }
  return done;
}

}  // namespace uroce::udp
