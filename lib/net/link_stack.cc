#include "net/link_stack.h"

#include <algorithm>

#include "net/link_impl.h"

namespace uroce::net {
namespace {

/// Whether the first `bits` bits behind the v4-mapped prefix (or of the whole address) are equal.
bool same_prefix(const wire::Address& a, const InterfaceAddress& b) {
  if (a.is_v4() != b.address.is_v4()) return false;
  unsigned bits = a.is_v4() ? 96u + std::min<unsigned>(b.prefix_bits, 32) : std::min<unsigned>(b.prefix_bits, 128);
  for (std::size_t i = 0; bits != 0; ++i) {
    const unsigned take = std::min(bits, 8u);
    const unsigned mask = 0xff00u >> take & 0xff;
    if (((a.bytes[i] ^ b.address.bytes[i]) & mask) != 0) return false;
    bits -= take;
  }
  return true;
}

bool is_link_local(const wire::Address& address) {
  return address.bytes[0] == 0xfe && (address.bytes[1] & 0xc0) == 0x80;
}

/// 255.255.255.255, or all host bits set in a prefix of ours.
bool is_broadcast(const wire::Address& address, const LinkConfig& config) {
  if (!address.is_v4()) return false;
  const std::uint32_t value = get32(reinterpret_cast<const std::byte*>(address.bytes.data() + 12));
  if (value == 0xffffffff) return true;
  return std::any_of(config.addresses.begin(), config.addresses.end(), [&](const InterfaceAddress& own) {
    if (own.prefix_bits >= 31 || !same_prefix(address, own)) return false;
    const std::uint32_t host = 0xffffffffu >> own.prefix_bits;
    return (value & host) == host;
  });
}

}  // namespace

wire::Mac multicast_mac(const wire::Address& group) {
  const auto& b = group.bytes;
  if (!group.is_v4()) return {0x33, 0x33, b[12], b[13], b[14], b[15]};  // RFC 2464, 7
  return {0x01, 0x00, 0x5e, static_cast<std::uint8_t>(b[13] & 0x7f), b[14], b[15]};  // RFC 1112, 6.4
}

std::span<std::byte> OutQueue::push(std::size_t bytes) {
  if (count_ == kSlots) return {};
  std::vector<std::byte>& slot = slots_[(head_ + count_++) % kSlots];
  slot.assign(bytes, std::byte{0});
  return slot;
}

std::size_t OutQueue::pop(std::span<std::byte> to) {
  while (count_ != 0) {
    const std::vector<std::byte>& slot = slots_[head_];
    head_ = (head_ + 1) % kSlots;
    --count_;
    if (slot.size() > to.size()) continue;
    std::memcpy(to.data(), slot.data(), slot.size());
    return slot.size();
  }
  return 0;
}

bool LinkStack::Impl::local(const wire::Address& address) const {
  return std::any_of(config.addresses.begin(), config.addresses.end(),
                     [&](const InterfaceAddress& own) { return own.address == address; });
}

bool LinkStack::Impl::on_link(const wire::Address& address) const {
  if (!address.is_v4() && is_link_local(address)) return true;
  return std::any_of(config.addresses.begin(), config.addresses.end(),
                     [&](const InterfaceAddress& own) { return same_prefix(address, own); });
}

const wire::Address* LinkStack::Impl::source_for(const wire::Address& target) const {
  const wire::Address* any = nullptr;
  for (const InterfaceAddress& own : config.addresses) {
    if (own.address.is_v4() != target.is_v4()) continue;
    if (same_prefix(target, own)) return &own.address;
    if (any == nullptr) any = &own.address;
  }
  return any;
}

wire::Address LinkStack::Impl::link_local_source() const {
  for (const InterfaceAddress& own : config.addresses) {
    if (!own.address.is_v4() && is_link_local(own.address)) return own.address;
  }
  return {};
}

bool LinkStack::Impl::addressed_to_us(const wire::Mac& destination) const {
  return destination == config.mac || (destination[0] & 1) != 0;
}

bool LinkStack::Impl::believable(const wire::Address& address, const wire::Mac& mac) {
  return is_unicast(mac) && mac != config.mac && !address.is_multicast() && !local(address) && on_link(address) &&
         !is_broadcast(address, config);
}

void LinkStack::Impl::confirm(const wire::Address& address, const wire::Mac& mac, Nanos now) {
  Neighbour* known = table.find(address);
  if (known == nullptr || !believable(address, mac)) return;
  known->mac = mac;
  known->state = Neighbour::State::kReachable;
  known->tries = 0;
  known->confirmed_at = now;
  table.schedule(*known, kNever);
}

void LinkStack::Impl::learn(const wire::Address& address, const wire::Mac& mac, Nanos now) {
  if (!believable(address, mac)) return;
  table.add(address, now);
  confirm(address, mac, now);
}

void LinkStack::Impl::ask(Neighbour& neighbour, Nanos now) {
  ++neighbour.tries;
  ++counters.asked;
  table.schedule(neighbour, now + kAskInterval);
  // The address that we had is asked first: no need to wake the whole segment.
  const bool check = neighbour.state == Neighbour::State::kReachable;
  if (!neighbour.address.is_v4()) return send_solicitation(neighbour.address, check ? &neighbour.mac : nullptr);
  const wire::Address* from = source_for(neighbour.address);
  if (from == nullptr) return;
  send_arp(true, check ? neighbour.mac : kBroadcastMac, {}, *from, neighbour.address);
}

void LinkStack::Impl::announce(const wire::Address& address) {
  if (address.is_v4()) return send_arp(true, kBroadcastMac, {}, address, address);  // RFC 5227, 3
  wire::Address all_nodes;
  all_nodes.bytes = {0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  send_advertisement(multicast_mac(all_nodes), all_nodes, address, false);
}

void LinkStack::Impl::defend(const wire::Address& address, Nanos now) {
  ++counters.address_conflicts;
  if (now < defend_after) return;
  defend_after = now + kSecond;
  announce(address);
}

std::span<std::byte> LinkStack::Impl::start_frame(const wire::Mac& to, std::uint16_t ether_type,
                                                  std::size_t bytes) {
  const std::span<std::byte> frame = out.push(std::max(kEthernetBytes + bytes, kMinFrameBytes));
  if (frame.empty()) {
    ++counters.dropped;
    return frame;
  }
  put_mac(frame.data(), to);
  put_mac(frame.data() + 6, config.mac);
  put16(frame.data() + 12, ether_type);
  return frame.subspan(kEthernetBytes);
}

LinkStack::LinkStack(const LinkConfig& config) : impl_(std::make_unique<Impl>(config)) {
  for (const InterfaceAddress& own : config.addresses) impl_->to_announce.push_back(own.address);
}
LinkStack::~LinkStack() = default;

void LinkStack::receive(std::span<const std::byte> bytes, Nanos now) {
  ++impl_->counters.received;
  if (bytes.size() < kEthernetBytes) {
    ++impl_->counters.malformed;
    return;
  }
  LinkFrame frame;
  frame.destination = get_mac(bytes.data());
  frame.source = get_mac(bytes.data() + 6);
  frame.ether_type = get16(bytes.data() + 12);
  frame.body = bytes.subspan(kEthernetBytes);
  if (frame.ether_type == kEtherVlan && frame.body.size() >= kVlanTagBytes &&
      (get16(frame.body.data()) & 0xfff) == 0) {
    frame.ether_type = get16(frame.body.data() + 2);  // a priority tag: no VLAN
    frame.body = frame.body.subspan(kVlanTagBytes);
  }
  if (!impl_->addressed_to_us(frame.destination) || !is_unicast(frame.source) ||
      frame.source == impl_->config.mac) {
    ++impl_->counters.ignored;
    return;
  }
  switch (frame.ether_type) {
    case kEtherArp:
      return impl_->receive_arp(frame, now);
    case kEtherIpv4:
      return impl_->receive_ipv4(frame, now);
    case kEtherIpv6:
      return impl_->receive_ipv6(frame, now);
    default:
      ++impl_->counters.ignored;
  }
}

std::size_t LinkStack::next_frame(std::span<std::byte> to) { return impl_->out.pop(to); }

Resolution LinkStack::resolve(const wire::Address& destination, Nanos now, wire::Mac& out) {
  if (impl_->local(destination)) return out = impl_->config.mac, Resolution::kResolved;
  if (destination.is_multicast()) return out = multicast_mac(destination), Resolution::kResolved;
  if (is_broadcast(destination, impl_->config)) return out = kBroadcastMac, Resolution::kResolved;

  wire::Address hop = destination;
  if (!impl_->on_link(hop)) {
    const auto& gateway = hop.is_v4() ? impl_->config.gateway4 : impl_->config.gateway6;
    if (!gateway || !impl_->on_link(*gateway)) return Resolution::kNoRoute;
    hop = *gateway;
  }
  if (impl_->source_for(hop) == nullptr) return Resolution::kNoRoute;

  Neighbour* known = impl_->table.find(hop);
  if (known == nullptr) {
    known = &impl_->table.add(hop, now);
    impl_->ask(*known, now);
  }
  known->wanted = true;
  known->used_at = now;
  if (known->state == Neighbour::State::kFailed) return Resolution::kFailed;
  if (known->state == Neighbour::State::kPending) return Resolution::kPending;
  if (now - known->confirmed_at >= kConfirmAge && known->deadline == kNever) impl_->ask(*known, now);
  out = known->mac;
  return Resolution::kResolved;
}

void LinkStack::advance(Nanos now) {
  for (const wire::Address& address : impl_->to_announce) impl_->announce(address);
  impl_->to_announce.clear();
  impl_->report_groups(now);
  while (Neighbour* neighbour = impl_->table.due(now)) {
    if (neighbour->state == Neighbour::State::kFailed) {
      impl_->table.erase(neighbour->address);
    } else if (neighbour->tries < kAskTries) {
      impl_->ask(*neighbour, now);
    } else {
      ++impl_->counters.unreachable;
      neighbour->state = Neighbour::State::kFailed;
      impl_->table.schedule(*neighbour, now + kFailedPause);
    }
  }
}

Nanos LinkStack::next_timeout() const {
  if (!impl_->to_announce.empty()) return 0;
  return std::min(impl_->table.next_deadline(), impl_->members.next_deadline());
}

bool LinkStack::is_local(const wire::Address& address) const { return impl_->local(address); }

void LinkStack::add_address(const InterfaceAddress& address) {
  if (impl_->local(address.address)) return;
  impl_->config.addresses.push_back(address);
  impl_->to_announce.push_back(address.address);
  impl_->table.erase(address.address);
}

void LinkStack::remove_address(const wire::Address& address) {
  std::erase_if(impl_->config.addresses, [&](const InterfaceAddress& own) { return own.address == address; });
  std::erase(impl_->to_announce, address);
}

const LinkCounters& LinkStack::counters() const { return impl_->counters; }
std::size_t LinkStack::neighbours() const { return impl_->table.size(); }

}  // namespace uroce::net
