#include "drivers/packet/udp/receiver.h"

#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "drivers/packet/udp/virtual_link.h"
#include "platform/clock.h"
#include "wire/bth.h"
#include "wire/icrc.h"
#include "wire/network_headers.h"

#ifndef UDP_GRO
#define UDP_GRO 104
#endif

namespace uroce::udp {
namespace {

constexpr std::size_t kLeastPacket = wire::kBthBytes + wire::kIcrcBytes;

int int_of(const cmsghdr& message) {
  int value = 0;
  std::memcpy(&value, CMSG_DATA(&message), sizeof(value));
  return value;
}

}  // namespace

Receiver::Receiver(std::span<const Endpoint> endpoints, const wire::Mac& own, packet::FramePool& pool,
                   IdCheck check)
    : endpoints_(endpoints),
      own_(own),
      pool_(pool),
      poll_(::epoll_create1(EPOLL_CLOEXEC)),
      buffers_(kDatagrams * kDatagramBytes),
      check_(check) {
  for (std::size_t i = 0; i < endpoints_.size(); ++i) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = i;
    if (::epoll_ctl(poll_.get(), EPOLL_CTL_ADD, endpoints_[i].socket.get(), &event) != 0) poll_.reset();
  }
}

bool Receiver::waiting() const {
  epoll_event event{};
  return next_ != count_ || ::epoll_wait(poll_.get(), &event, 1, 0) > 0;
}

std::uint64_t Receiver::dropped_by_kernel() const {
  std::uint64_t sum = 0;
  for (const Endpoint& endpoint : endpoints_) {
    std::array<std::uint32_t, SK_MEMINFO_VARS> values{};
    socklen_t bytes = sizeof(values);
    if (::getsockopt(endpoint.socket.get(), SOL_SOCKET, SO_MEMINFO, values.data(), &bytes) == 0) {
      sum += values[SK_MEMINFO_DROPS];
    }
  }
  return sum;
}

std::size_t Receiver::receive(std::span<base::Frame> frames, net::DeviceCounters& counters) {
  std::size_t filled = 0;
  while (filled < frames.size()) {
    if (next_ == count_ && !read_more()) break;
    const std::size_t more = cut(frames.subspan(filled), counters);
    filled += more;
    if (more == 0 && next_ != count_) break;  // no buffers
  }
  return filled;
}

bool Receiver::read_more() {
  if (endpoints_.size() == 1) return read(endpoints_.front());
  epoll_event event{};
  return ::epoll_wait(poll_.get(), &event, 1, 0) > 0 && read(endpoints_[event.data.u64]);
}

bool Receiver::read(const Endpoint& endpoint) {
  mmsghdr messages[kDatagrams];
  iovec pieces[kDatagrams];
  sockaddr_in6 sources[kDatagrams];
  alignas(cmsghdr) std::byte control[kDatagrams][kControlBytes];
  for (std::size_t i = 0; i < kDatagrams; ++i) {
    pieces[i] = {buffers_.data() + i * kDatagramBytes, kDatagramBytes};
    messages[i] = {};
    messages[i].msg_hdr.msg_name = &sources[i];
    messages[i].msg_hdr.msg_namelen = sizeof(sources[i]);
    messages[i].msg_hdr.msg_iov = &pieces[i];
    messages[i].msg_hdr.msg_iovlen = 1;
    messages[i].msg_hdr.msg_control = control[i];
    messages[i].msg_hdr.msg_controllen = kControlBytes;
  }
  const int got = ::recvmmsg(endpoint.socket.get(), messages, kDatagrams, MSG_DONTWAIT, nullptr);
  if (got <= 0) return false;
  for (std::size_t i = 0; i < static_cast<std::size_t>(got); ++i) {
    Datagram& datagram = datagrams_[i];
    datagram = {.bytes = messages[i].msg_len, .segment = messages[i].msg_len, .source = {}};
    if (endpoint.address.is_v4()) {
      sockaddr_in v4;
      std::memcpy(&v4, &sources[i], sizeof(v4));
      datagram.source = wire::load_ipv4(reinterpret_cast<const std::byte*>(&v4.sin_addr));
      datagram.source_port = ntohs(v4.sin_port);
    } else {
      datagram.source = wire::load_ipv6(reinterpret_cast<const std::byte*>(&sources[i].sin6_addr));
      datagram.source_port = ntohs(sources[i].sin6_port);
    }
    for (cmsghdr* each = CMSG_FIRSTHDR(&messages[i].msg_hdr); each != nullptr;
         each = CMSG_NXTHDR(&messages[i].msg_hdr, each)) {
      const auto is = [each](int level, int type) { return each->cmsg_level == level && each->cmsg_type == type; };
      if (is(SOL_UDP, UDP_GRO)) datagram.segment = static_cast<std::uint32_t>(int_of(*each));
      if (is(SOL_IP, IP_TTL) || is(SOL_IPV6, IPV6_HOPLIMIT)) {
        datagram.hop_limit = static_cast<std::uint8_t>(int_of(*each));
      }
      if (is(SOL_IPV6, IPV6_TCLASS)) datagram.traffic_class = static_cast<std::uint8_t>(int_of(*each));
      if (is(SOL_IP, IP_TOS)) datagram.traffic_class = *CMSG_DATA(each);  // one byte, unlike the others
    }
    if (datagram.segment == 0) datagram.segment = datagram.bytes;
  }
  from_ = &endpoint;
  next_ = 0;
  count_ = static_cast<std::size_t>(got);
  offset_ = 0;
  read_at_ = 0;
  return true;
}

void Receiver::use_template_of(const Datagram& datagram) {
  const Origin origin{from_, datagram.source, datagram.source_port, datagram.traffic_class, datagram.hop_limit};
  if (origin == origin_) return;
  origin_ = origin;
  settled_ = false;
  wire::PathAddress path;
  path.source_mac = mac_of(origin.source, own_);
  path.dest_mac = own_;
  path.source = origin.source;
  path.dest = from_->address;
  path.traffic_class = origin.traffic_class & 0xfc;
  path.ecn = origin.traffic_class & 3;
  path.hop_limit = origin.hop_limit;
  path.source_port = origin.source_port;
  template_ = wire::FrameTemplate(path);
}

/// Frames from the datagram that is next, as far as there are buffers.
std::size_t Receiver::cut(std::span<base::Frame> frames, net::DeviceCounters& counters) {
  const Datagram& datagram = datagrams_[next_];
  use_template_of(datagram);
  const std::size_t left = datagram.bytes - offset_;
  const std::size_t packets = datagram.segment == 0 ? 0 : (left + datagram.segment - 1) / datagram.segment;
  const std::size_t room = pool_.allocate(frames.first(std::min(frames.size(), packets)));
  const std::byte* const data = buffers_.data() + next_ * kDatagramBytes;
  std::size_t filled = 0;
  for (std::size_t i = 0; i < room; ++i) {
    const std::size_t bytes = std::min<std::size_t>(datagram.segment, datagram.bytes - offset_);
    if (bytes < kLeastPacket || template_.header_bytes() + bytes > frames[filled].capacity) {
      ++counters.rx_dropped;
      // The buffer stays for the next packet: the last ones of `frames` go back.
    } else {
      fill(frames[filled], data + offset_, bytes);
      counters.rx_bytes += frames[filled].length;
      ++filled;
    }
    offset_ += static_cast<std::uint32_t>(bytes);
  }
  counters.rx_packets += filled;
  pool_.give_back(frames.subspan(filled, room - filled));
  if (offset_ >= datagram.bytes) {
    if (datagram.bytes == 0) ++counters.rx_dropped;
    ++next_;
    offset_ = 0;
  }
  return filled;
}

void Receiver::fill(base::Frame& frame, const std::byte* packet, std::size_t bytes) {
  std::byte* const to = frame.data + template_.emit(frame.data, bytes);
  frame.length = static_cast<std::uint32_t>(template_.header_bytes() + bytes);
  frame.flags = base::kIpChecksumGood;
  if (!from_->address.is_v4()) {
    std::memcpy(to, packet, bytes);
    return;
  }
  const std::size_t covered = bytes - wire::kIcrcBytes;
  std::memcpy(to, packet, wire::kBthBytes);
  std::uint32_t state = wire::icrc_begin(frame.data + template_.ip_offset(), template_.ip_bytes(), wire::kBthBytes);
  state = wire::crc_engine().copy(state, to + wire::kBthBytes, packet + wire::kBthBytes, covered - wire::kBthBytes);
  std::uint32_t icrc = wire::load_raw<std::uint32_t>(packet + covered);
  // After the identification: 14 bytes of the IPv4 header, the UDP header.
  if (is_intact(icrc ^ wire::icrc_finish(state), covered + 14 + wire::UdpHeader::kBytes)) {
    icrc = wire::icrc_finish(state);
  }
  wire::store_raw(to + covered, icrc);
}

/// Whether an IPv4 packet whose ICRC differs by `delta` from that for identification 0 is taken for intact.
bool Receiver::is_intact(std::uint32_t delta, std::size_t trailing) {
  const auto identification = delta_.solve(delta, trailing);
  if (!identification) return false;
  const bool in_row = *identification < IcrcDelta::kIdentifications;
  if (in_row && settled_) return true;
  if (check_ != IdCheck::kCount) return in_row || check_ == IdCheck::kAny;
  if (read_at_ == 0) read_at_ = monotonic_now();
  return identifications_.accepts(wire::load32(reinterpret_cast<const std::byte*>(&origin_.source.bytes[12])),
                                  *identification, read_at_, settled_);
}

}  // namespace uroce::udp
