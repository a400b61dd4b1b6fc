#include "net/membership.h"

#include <algorithm>

#include "net/link_impl.h"

namespace uroce::net {
namespace {

constexpr std::size_t kIp4Bytes = 24, kIp6Bytes = 40, kHopByHopBytes = 8;  // IPv4 with a router alert
constexpr std::size_t kIgmpBytes = 8, kIgmpReportBytes = 16, kMldBytes = 24, kMldReportBytes = 28;
constexpr std::uint8_t kIgmpQuery = 0x11, kIgmpReport2 = 0x16, kIgmpLeave = 0x17, kIgmpReport3 = 0x22;
constexpr std::uint8_t kMldQuery = 130, kMldReport1 = 131, kMldDone = 132, kMldReport2 = 143;
constexpr std::uint8_t kProtoIgmp = 2;

wire::Address all_routers_v4(std::uint8_t last) {
  wire::Address address;
  address.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 224, 0, 0, last};
  return address;
}
wire::Address all_routers_v6(std::uint8_t last) {
  wire::Address address;
  address.bytes = {0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last};
  return address;
}

/// Codes above 127 are a mantissa and an exponent (RFC 3376, 4.1.1); the unit is a tenth of a second.
Nanos igmp_time(std::uint8_t code) {
  const std::uint64_t tenths = code < 128 ? code : ((code & 0x0fu) | 0x10u) << (((code >> 4) & 7u) + 3);
  return tenths * 100 * kMillisecond;
}
/// MLDv2's maximum response code: 16 bits, in milliseconds (RFC 3810, 5.1.3).
Nanos mld_time(std::uint16_t code) {
  const std::uint64_t ms = code < 32768 ? code : ((code & 0x0fffu) | 0x1000u) << (((code >> 12) & 7u) + 3);
  return ms * kMillisecond;
}

/// Spreads the answers of many members over the time that the querier allows.
Nanos delay_of(const wire::Address& group, Nanos now, Nanos within) {
  std::uint64_t hash = now;
  for (const std::uint8_t byte : group.bytes) hash = (hash ^ byte) * 0x100000001b3u;
  return within == 0 ? 0 : hash % within;
}

}  // namespace

bool is_reported(const wire::Address& group) {
  return group != all_routers_v4(1) && (group.is_v4() || (group.bytes[1] & 0x0f) > 1) && group != all_routers_v6(1);
}

void Membership::join(const wire::Address& group, Nanos now) {
  groups_[group] = {now, kTimes};
  next_ = std::min(next_, now);
}

bool Membership::leave(const wire::Address& group) { return groups_.erase(group) != 0; }

void Membership::on_query(bool v4, const wire::Address& group, Nanos now, Nanos within) {
  for (auto& [address, member] : groups_) {
    if (address.is_v4() != v4 || (group != wire::Address{} && group != address)) continue;
    member.deadline = std::min(member.deadline, now + delay_of(address, now, within));
  }
  recompute();
}

std::optional<Membership::Due> Membership::take_due(Nanos now) {
  if (now < next_) return std::nullopt;
  for (auto& [address, member] : groups_) {
    if (now < member.deadline) continue;
    const Report report = member.joins_left != 0 ? Report::kJoined : Report::kIs;
    if (member.joins_left != 0) --member.joins_left;
    member.deadline = member.joins_left != 0 ? now + kRepeat : kNever;
    return Due{address, report};
  }
  recompute();
  return std::nullopt;
}

void Membership::recompute() {
  next_ = kNever;
  for (const auto& [address, member] : groups_) next_ = std::min(next_, member.deadline);
}

// ---------------------------------------------------------------- on the wire

bool LinkStack::Impl::receive_igmp(std::span<const std::byte> ip, Nanos now) {
  const std::size_t header = ip.empty() ? 0 : (wire::load8(ip.data()) & 0x0fu) * 4u;
  if (header < 20 || ip.size() < header || wire::load8(ip.data() + 9) != kProtoIgmp) return false;
  const std::size_t total = wire::load16(ip.data() + 2);
  if (total > ip.size() || total < header + kIgmpBytes ||
      wire::ones_complement_sum({ip.data(), header}) != 0xffff ||
      wire::ones_complement_sum({ip.data() + header, total - header}) != 0xffff) {
    ++counters.malformed;
    return true;
  }
  const std::byte* igmp = ip.data() + header;
  const wire::Address group = wire::load32(igmp + 4) == 0 ? wire::Address{} : wire::load_ipv4(igmp + 4);
  if (wire::load8(igmp) != kIgmpQuery || (group != wire::Address{} && !group.is_multicast())) {
    ++counters.ignored;
    return true;
  }
  if (total == header + kIgmpBytes) members.saw_old_querier(true, now);
  members.on_query(true, group, now, igmp_time(wire::load8(igmp + 1)));
  return true;
}

void LinkStack::Impl::receive_mld(std::span<const std::byte> mld, Nanos now) {
  if (mld.size() < kMldBytes || wire::load8(mld.data()) != kMldQuery) {
    ++counters.ignored;
    return;
  }
  const wire::Address group = wire::load_ipv6(mld.data() + 8);
  if (mld.size() == kMldBytes) members.saw_old_querier(false, now);
  members.on_query(false, group, now, mld_time(wire::load16(mld.data() + 4)));
}

void LinkStack::Impl::report_groups(Nanos now) {
  while (out.has_room()) {
    const auto due = members.take_due(now);
    if (!due) return;
    report(due->group, due->report, now);
  }
}

void LinkStack::Impl::report(const wire::Address& group, Report what, Nanos now) {
  if (!is_reported(group)) return;
  ++counters.group_reports;
  const bool old = members.speaks_old(group.is_v4(), now);
  return group.is_v4() ? send_igmp(group, what, old) : send_mld(group, what, old);
}

void LinkStack::Impl::send_igmp(const wire::Address& group, Report what, bool old) {
  const bool left = what == Report::kLeft;
  const wire::Address to = !old ? all_routers_v4(22) : left ? all_routers_v4(2) : group;
  const std::size_t bytes = old ? kIgmpBytes : kIgmpReportBytes;
  const std::span<std::byte> frame = start_frame(multicast_mac(to), wire::kEtherTypeIpv4, kIp4Bytes + bytes);
  if (frame.empty()) return;
  std::byte* ip = frame.data();
  wire::store16(ip, 0x46c0);  // network control
  wire::store16(ip + 2, static_cast<unsigned>(kIp4Bytes + bytes));
  wire::store16(ip + 4, 0);
  wire::store16(ip + 6, 0x4000);
  wire::store8(ip + 8, 1);
  wire::store8(ip + 9, kProtoIgmp);
  wire::store16(ip + 10, 0);
  const wire::Address* from = source_for(group);
  std::fill_n(ip + 12, 4, std::byte{0});
  if (from != nullptr) wire::store_ipv4(ip + 12, *from);
  wire::store_ipv4(ip + 16, to);
  wire::store16(ip + 20, 0x9404);  // router alert
  wire::store16(ip + 22, 0);
  wire::store16(ip + 10, wire::internet_checksum({ip, kIp4Bytes}));
  std::byte* igmp = ip + kIp4Bytes;
  std::fill_n(igmp, bytes, std::byte{0});
  if (old) {
    wire::store8(igmp, left ? kIgmpLeave : kIgmpReport2);
    wire::store_ipv4(igmp + 4, group);
  } else {
    wire::store8(igmp, kIgmpReport3);
    wire::store16(igmp + 6, 1);
    wire::store8(igmp + 8, static_cast<unsigned>(what));
    wire::store_ipv4(igmp + 12, group);
  }
  wire::store16(igmp + 2, wire::internet_checksum({igmp, bytes}));
}

void LinkStack::Impl::send_mld(const wire::Address& group, Report what, bool old) {
  const bool left = what == Report::kLeft;
  const wire::Address to = !old ? all_routers_v6(22) : left ? all_routers_v6(2) : group;
  const std::size_t bytes = old ? kMldBytes : kMldReportBytes;
  const auto frame = start_frame(multicast_mac(to), wire::kEtherTypeIpv6, kIp6Bytes + kHopByHopBytes + bytes);
  if (frame.empty()) return;
  std::byte* ip = frame.data();
  wire::store16(ip, 0x6000);
  wire::store16(ip + 2, 0);
  wire::store16(ip + 4, static_cast<unsigned>(kHopByHopBytes + bytes));
  wire::store8(ip + 6, 0);
  wire::store8(ip + 7, 1);
  wire::store_ipv6(ip + 8, link_local_source());
  wire::store_ipv6(ip + 24, to);
  std::byte* hop = ip + kIp6Bytes;  // router alert, and two bytes of padding
  wire::store8(hop, wire::kProtocolIcmpV6);
  wire::store8(hop + 1, 0);
  wire::store16(hop + 2, 0x0502);
  wire::store16(hop + 4, 0);
  wire::store16(hop + 6, 0x0100);
  std::byte* mld = hop + kHopByHopBytes;
  std::fill_n(mld, bytes, std::byte{0});
  if (old) {
    wire::store8(mld, left ? kMldDone : kMldReport1);
    wire::store_ipv6(mld + 8, group);
  } else {
    wire::store8(mld, kMldReport2);
    wire::store16(mld + 6, 1);
    wire::store8(mld + 8, static_cast<unsigned>(what));
    wire::store_ipv6(mld + 12, group);
  }
  const auto pseudo = static_cast<std::uint32_t>(bytes) + wire::kProtocolIcmpV6;
  wire::store16(mld + 2, wire::internet_checksum({mld, bytes}, wire::ones_complement_sum({ip + 8, 32}, pseudo)));
}

void LinkStack::join(const wire::Address& group, Nanos now) {
  for (const auto& link : links_) link->members.join(group, now);
}

void LinkStack::leave(const wire::Address& group, Nanos now) {
  for (const auto& link : links_) {
    if (link->members.leave(group)) link->report(group, Report::kLeft, now);
  }
}

}  // namespace uroce::net
