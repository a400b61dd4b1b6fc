#include "net/link_stack.h"

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <utility>

#include "net/link_impl.h"
#include "net/prefix.h"

namespace uroce::net {
namespace {

/// 255.255.255.255, or all host bits set in a prefix of ours.
bool is_broadcast(const wire::Address& address, const LinkConfig& config) {
  if (!address.is_v4()) return false;
  const std::uint32_t value = wire::load32(reinterpret_cast<const std::byte*>(address.bytes.data() + 12));
  if (value == 0xffffffff) return true;
  return std::any_of(config.addresses.begin(), config.addresses.end(),
                     [&](const InterfaceAddress& own) { return is_broadcast_of(own, address); });
}

NeighbourEntry describe(const Neighbour& each, std::uint16_t vlan, Nanos now) {
  using State = NeighbourEntry::State;
  NeighbourEntry entry{each.address, vlan, each.mac, State::kIncomplete, kNever, time_since(each.used_at, now)};
  if (each.confirmed_at != 0) entry.confirmed_ago = time_since(each.confirmed_at, now);
  if (each.state == Neighbour::State::kFailed) entry.state = State::kFailed;
  if (each.state == Neighbour::State::kReachable) {
    entry.state = entry.confirmed_ago < kConfirmAge ? State::kReachable : State::kStale;
  }
  return entry;
}

}  // namespace

wire::Mac multicast_mac(const wire::Address& group) {
  const auto& b = group.bytes;
  if (!group.is_v4()) return {0x33, 0x33, b[12], b[13], b[14], b[15]};               // RFC 2464, 7
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

bool LinkStack::Impl::kernel_answers_for(const wire::Address& address) const {
  return std::ranges::find(kernel_has, address) != kernel_has.end();
}

bool LinkStack::Impl::on_link(const wire::Address& address) const {
  if (address.is_link_local()) return true;
  return std::any_of(config.addresses.begin(), config.addresses.end(),
                     [&](const InterfaceAddress& own) { return in_prefix(own, address); });
}

const wire::Address* LinkStack::Impl::source_for(const wire::Address& target) const {
  const wire::Address* any = nullptr;
  for (const InterfaceAddress& own : config.addresses) {
    if (own.address.is_v4() != target.is_v4()) continue;
    if (in_prefix(own, target)) return &own.address;
    if (any == nullptr) any = &own.address;
  }
  return any;
}

wire::Address LinkStack::Impl::link_local_source() const {
  for (const InterfaceAddress& own : config.addresses) {
    if (own.address.is_link_local()) return own.address;
  }
  return {};
}

bool LinkStack::Impl::addressed_to_us(const wire::Mac& destination) const {
  return destination == config.mac || (destination[0] & 1) != 0;
}

bool LinkStack::Impl::believable(const wire::Address& address, const wire::Mac& mac) {
  return wire::is_unicast(mac) && mac != config.mac && !address.is_multicast() && !local(address) &&
         on_link(address) && !is_broadcast(address, config);
}

void LinkStack::Impl::confirm(const wire::Address& address, const wire::Mac& mac, Nanos now) {
  Neighbour* known = table.find(address);
  if (known == nullptr || !believable(address, mac)) return;
  known->mac = mac;
  resolved |= known->state != Neighbour::State::kReachable;
  known->state = Neighbour::State::kReachable;
  known->tries = 0;
  known->confirmed_at = now;
  table.schedule(*known, kNever);
}

void LinkStack::Impl::learn(const wire::Address& address, const wire::Mac& mac, Nanos now) {
  if (!believable(address, mac)) return;
  // Requests from made-up senders must neither push out others nor cost a search for the least recently used entry.
  if (table.full() && table.find(address) == nullptr) return;
  add_neighbour(address, now);
  confirm(address, mac, now);
}

Neighbour& LinkStack::Impl::add_neighbour(const wire::Address& address, Nanos now) {
  if (table.full() && table.find(address) == nullptr) recheck_at = std::min(recheck_at, now + kRecheckPause);
  return table.add(address, now);
}

void LinkStack::Impl::ask(Neighbour& neighbour, Nanos now) {
  ++neighbour.tries;
  ++counters.solicited;
  table.schedule(neighbour, now + kAskInterval);
  // A known neighbour is probed by unicast, which does not disturb the whole segment (RFC 4861, 7.3.3).
  const bool check = neighbour.state == Neighbour::State::kReachable;
  if (!neighbour.address.is_v4()) return send_solicitation(neighbour.address, check ? &neighbour.mac : nullptr);
  const wire::Address* from = source_for(neighbour.address);
  if (from == nullptr) return;
  send_arp(true, check ? neighbour.mac : wire::kBroadcastMac, {}, *from, neighbour.address);
}

void LinkStack::Impl::announce(const wire::Address& address) {
  if (kernel_answers_for(address)) return;
  if (address.is_v4()) return send_arp(true, wire::kBroadcastMac, {}, address, address);  // RFC 5227, 3
  wire::Address all_nodes;
  all_nodes.bytes = {0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  send_advertisement(multicast_mac(all_nodes), all_nodes, address, false);
}

void LinkStack::Impl::probe(const wire::Address& address) {
  if (kernel_answers_for(address)) return;
  if (!address.is_v4()) return send_duplicate_detection(address);
  send_arp(true, wire::kBroadcastMac, {}, {}, address);  // without a sender, so that no table takes us in
}

void LinkStack::Impl::announce_all() {
  to_announce.clear();
  for (const InterfaceAddress& own : config.addresses) to_announce.push_back(own.address);
}

void LinkStack::Impl::defend(const wire::Address& address, const wire::Mac& station, Nanos now) {
  if (station == config.mac) return;  // our own frame, which the segment has sent back
  ++counters.address_conflicts;
  const auto known = std::ranges::find(conflicts, address, &AddressConflict::address);
  (known != conflicts.end() ? *known : conflicts.emplace_back()) = {address, station};
  Nanos& next = defend_after[address];
  if (now < next) return;
  next = now + kSecond;
  announce(address);
}

std::span<std::byte> LinkStack::Impl::start_frame(const wire::Mac& to, std::uint16_t ether_type,
                                                  std::size_t bytes) {
  const std::size_t header = wire::EthernetHeader::kBytes + (vlan != 0 ? wire::VlanTag::kBytes : 0);
  const std::span<std::byte> frame = out.push(std::max(header + bytes, wire::kMinFrameBytes));
  if (frame.empty()) {
    ++counters.dropped;
    return frame;
  }
  wire::store_mac(frame.data(), to);
  wire::store_mac(frame.data() + 6, config.mac);
  if (vlan != 0) {
    wire::store16(frame.data() + 12, wire::kEtherTypeVlan);
    wire::store16(frame.data() + 14, vlan);
  }
  wire::store16(frame.data() + header - 2, ether_type);
  return frame.subspan(header);
}

bool LinkStack::Impl::receive(const LinkFrame& frame, Nanos now) {
  answered = false;
  if (!addressed_to_us(frame.destination) || !wire::is_unicast(frame.source) || frame.source == config.mac) {
    ++counters.ignored;
    return false;
  }
  switch (frame.ether_type) {
    case wire::kEtherTypeArp: receive_arp(frame, now); break;
    case wire::kEtherTypeIpv4: receive_ipv4(frame, now); break;
    case wire::kEtherTypeIpv6: receive_ipv6(frame, now); break;
    default: ++counters.ignored;
  }
  return answered;
}

Resolution LinkStack::Impl::resolve(const wire::Address& destination, Nanos now, wire::Mac& to) {
  if (local(destination)) return to = config.mac, Resolution::kResolved;
  if (destination.is_multicast()) return to = multicast_mac(destination), Resolution::kResolved;
  if (is_broadcast(destination, config)) return to = wire::kBroadcastMac, Resolution::kResolved;

  wire::Address hop = destination;
  if (!on_link(hop)) {
    const auto& gateway = hop.is_v4() ? config.gateway4 : config.gateway6;
    if (!gateway || !on_link(*gateway)) return Resolution::kNoRoute;
    hop = *gateway;
  }
  if (source_for(hop) == nullptr) return Resolution::kNoRoute;

  Neighbour* known = table.find(hop);
  if (known == nullptr) {
    known = &add_neighbour(hop, now);
    ask(*known, now);
  }
  known->wanted = true;
  known->used_at = now;
  if (known->state == Neighbour::State::kFailed) return Resolution::kFailed;
  if (known->state == Neighbour::State::kPending) return Resolution::kPending;
  if (time_since(known->confirmed_at, now) >= kConfirmAge && known->deadline == kNever) ask(*known, now);
  to = known->mac;
  return Resolution::kResolved;
}

void LinkStack::Impl::advance(Nanos now) {
  while (!to_announce.empty() && out.has_room()) {
    announce(to_announce.front());
    probe(to_announce.front());
    to_announce.erase(to_announce.begin());
  }
  report_groups(now);
  if (now >= recheck_at) resolved = true, recheck_at = kNever;
  while (Neighbour* neighbour = table.due(now)) {
    if (neighbour->state == Neighbour::State::kFailed) {
      table.erase(neighbour->address);
    } else if (neighbour->tries < kAskTries) {
      ask(*neighbour, now);
    } else {
      ++counters.unreachable;
      resolved = true;
      neighbour->state = Neighbour::State::kFailed;
      table.schedule(*neighbour, now + kFailedPause);
    }
  }
}

Nanos LinkStack::Impl::next_timeout() const {
  if (!to_announce.empty()) return 0;
  return std::min({table.next_deadline(), members.next_deadline(), recheck_at});
}

void LinkStack::Impl::add_address(const InterfaceAddress& address) {
  if (local(address.address)) return;
  config.addresses.push_back(address);
  to_announce.push_back(address.address);
  table.erase(address.address);
  resolved = true;
}

void LinkStack::Impl::remove_address(const wire::Address& address) {
  std::erase_if(config.addresses, [&](const InterfaceAddress& own) { return own.address == address; });
  std::erase(to_announce, address);
  defend_after.erase(address);
  resolved = true;
}

LinkStack::LinkStack(const LinkConfig& config) : config_(config), counters_(std::make_unique<LinkCounters>()) {
  find_or_add(0);
  for (const InterfaceAddress& own : config.addresses) add_address(own);
}
LinkStack::~LinkStack() = default;

LinkStack::Impl* LinkStack::find(std::uint16_t vlan) const {
  const auto at = std::ranges::find_if(links_, [vlan](const auto& link) { return link->vlan == vlan; });
  return at == links_.end() ? nullptr : at->get();
}

LinkStack::Impl& LinkStack::find_or_add(std::uint16_t vlan) {
  if (Impl* link = find(vlan)) return *link;
  return *links_.emplace_back(std::make_unique<Impl>(config_, vlan, *counters_));
}

bool LinkStack::receive(std::span<const std::byte> bytes, Nanos now) {
  ++counters_->received;
  if (bytes.size() < wire::EthernetHeader::kBytes) {
    ++counters_->malformed;
    return false;
  }
  LinkFrame frame;
  frame.destination = wire::load_mac(bytes.data());
  frame.source = wire::load_mac(bytes.data() + 6);
  frame.ether_type = wire::load16(bytes.data() + 12);
  frame.body = bytes.subspan(wire::EthernetHeader::kBytes);
  std::uint16_t vlan = 0;  // also for a tag that carries only a priority
  if (frame.ether_type == wire::kEtherTypeVlan && frame.body.size() >= wire::VlanTag::kBytes) {
    vlan = wire::load16(frame.body.data()) & 0xfff;
    frame.ether_type = wire::load16(frame.body.data() + 2);
    frame.body = frame.body.subspan(wire::VlanTag::kBytes);
  }
  if (Impl* link = find(vlan)) return link->receive(frame, now);
  ++counters_->ignored;
  return false;
}

std::size_t LinkStack::next_frame(std::span<std::byte> to) {
  for (std::size_t i = 0; i < links_.size(); ++i) {
    Impl& link = *links_[turn_++ % links_.size()];
    if (const std::size_t bytes = link.out.pop(to); bytes != 0) return bytes;
  }
  return 0;
}

void LinkStack::announce_all() {
  for (const auto& link : links_) link->announce_all();
}

void LinkStack::set_gateways(const std::optional<wire::Address>& v4, const std::optional<wire::Address>& v6) {
  config_.gateway4 = v4, config_.gateway6 = v6;
  for (const auto& link : links_) {
    link->config.gateway4 = v4, link->config.gateway6 = v6;
    link->resolved = true;
  }
}

std::vector<AddressConflict> LinkStack::take_conflicts() {
  std::vector<AddressConflict> all;
  for (const auto& link : links_) {
    all.insert(all.end(), link->conflicts.begin(), link->conflicts.end());
    link->conflicts.clear();
  }
  return all;
}

Resolution LinkStack::resolve(const wire::Address& destination, Nanos now, wire::Mac& out, std::uint16_t vlan) {
  Impl* link = find(vlan);
  return link != nullptr ? link->resolve(destination, now, out) : Resolution::kNoRoute;
}

bool LinkStack::take_resolved() {
  bool any = false;
  for (const auto& link : links_) any |= std::exchange(link->resolved, false);
  return any;
}

void LinkStack::advance(Nanos now) {
  for (const auto& link : links_) link->advance(now);
}

Nanos LinkStack::next_timeout() const {
  Nanos next = kNever;
  for (const auto& link : links_) next = std::min(next, link->next_timeout());
  return next;
}

bool LinkStack::is_local(const wire::Address& address) const {
  return std::ranges::any_of(links_, [&](const auto& link) { return link->local(address); });
}

void LinkStack::add_address(const InterfaceAddress& address) { find_or_add(address.vlan).add_address(address); }

void LinkStack::set_mtu(std::uint32_t bytes) {
  config_.mtu = bytes;
  for (const auto& link : links_) link->config.mtu = bytes;
}

void LinkStack::remove_address(const wire::Address& address) {
  for (const auto& link : links_) link->remove_address(address);
}

void LinkStack::leave_to_kernel(std::span<const wire::Address> addresses) {
  for (const auto& link : links_) link->kernel_has.assign(addresses.begin(), addresses.end());
}

const LinkCounters& LinkStack::counters() const { return *counters_; }

std::size_t LinkStack::neighbours() const {
  std::size_t sum = 0;
  for (const auto& link : links_) sum += link->table.size();
  return sum;
}

std::vector<NeighbourEntry> LinkStack::list_neighbours(const wire::Address& first, std::size_t most,
                                                       Nanos now) const {
  std::vector<NeighbourEntry> all;
  for (const auto& link : links_) {
    link->table.for_each([&](const Neighbour& each) {
      if (each.address >= first) all.push_back(describe(each, link->vlan, now));
    });
  }
  const auto before = [](const NeighbourEntry& a, const NeighbourEntry& b) {
    return std::tie(a.address, a.vlan) < std::tie(b.address, b.vlan);
  };
  if (most == 0) return {};
  if (all.size() > most) {
    std::ranges::nth_element(all, all.begin() + static_cast<std::ptrdiff_t>(most) - 1, before);
    const wire::Address last = all[most - 1].address;
    std::erase_if(all, [&](const NeighbourEntry& each) { return each.address > last; });
  }
  std::ranges::sort(all, before);
  return all;
}

}  // namespace uroce::net
