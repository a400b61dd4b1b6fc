#include "tests/sim/network.h"

#include <algorithm>

#include "wire/icrc.h"
#include "wire/network_headers.h"

namespace uroce::sim {
namespace {

std::uint8_t at(std::span<const std::byte> frame, std::size_t offset) {
  return std::to_integer<std::uint8_t>(frame[offset]);
}

}  // namespace

NetworkSettings draw_short_network(Random& random, double harmless) {
  NetworkSettings settings;
  settings.latency = 500 + random.below(5'000);
  settings.jitter = random.chance(0.5) ? 0 : random.below(2'000);
  settings.reorder_by = 100 + random.below(20'000);
  if (random.chance(harmless)) return settings;
  constexpr double kRates[] = {0, 0.01, 0.05, 0.2};
  settings.drop = random.pick(kRates);
  settings.duplicate = random.pick(kRates);
  settings.reorder = random.pick(kRates);
  settings.corrupt = random.pick(kRates) / 2;
  return settings;
}

std::size_t bth_offset(std::span<const std::byte> frame) {
  if (frame.size() < 18) return frame.size();
  std::size_t ip = 14;
  if (at(frame, 12) == 0x81 && at(frame, 13) == 0x00) ip = 18;
  if (frame.size() <= ip) return frame.size();
  const std::size_t ip_bytes = (at(frame, ip) >> 4) == 4 ? std::size_t{at(frame, ip)} % 16 * 4 : 40;
  return std::min(ip + ip_bytes + 8, frame.size());
}

bool is_roce(std::span<const std::byte> frame) {
  const std::size_t bth = bth_offset(frame);
  return bth < frame.size() && (at(frame, bth - 6) << 8 | at(frame, bth - 5)) == wire::kRoceUdpPort;
}

bool is_by_reference(std::span<const std::byte> frame) {
  constexpr std::byte kNone[wire::kIcrcBytes]{};
  return frame.size() >= sizeof kNone && std::ranges::equal(frame.last(sizeof kNone), kNone);
}

std::uint32_t dest_qpn_of(std::span<const std::byte> frame) {
  const std::size_t bth = bth_offset(frame);
  if (bth + 12 > frame.size()) return ~std::uint32_t{0};
  return std::uint32_t{at(frame, bth + 5)} << 16 | std::uint32_t{at(frame, bth + 6)} << 8 | at(frame, bth + 7);
}

bool Network::may_harm(std::uint32_t to, std::span<const std::byte> frame) {
  const std::size_t bth = bth_offset(frame);
  if (bth + 12 > frame.size()) return true;
  std::uint64_t qpn = 0, psn = 0;
  for (int i = 5; i < 8; ++i) qpn = qpn << 8 | at(frame, bth + i);
  for (int i = 9; i < 12; ++i) psn = psn << 8 | at(frame, bth + i);
  // Requests and responses of one PSN are different packets; retransmissions of either are the same one.
  const std::uint8_t operation = at(frame, bth) & 0x1f;
  const std::uint64_t response = operation >= 0x0d && operation <= 0x12;
  const std::uint64_t key = psn | qpn << 24 | response << 48 | std::uint64_t{to} << 49;
  std::uint32_t& count = harm_[key];
  if (count >= settings_.max_losses) return false;
  ++count;
  return true;
}

void Network::enqueue(std::uint32_t to, std::span<const std::byte> frame, Nanos when, bool damaged) {
  std::uint32_t slot;
  if (free_slots_.empty()) {
    slot = static_cast<std::uint32_t>(slots_.size());
    slots_.emplace_back();
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  slots_[slot].assign(frame.begin(), frame.end());
  if (damaged) damage(slots_[slot]);
  queue_.push_back({.at = when, .order = order_++, .to = to, .slot = slot, .damaged = damaged});
  std::push_heap(queue_.begin(), queue_.end(), Later{});
}

void Network::damage(std::vector<std::byte>& frame) {
  ++damaged_;
  // The Ethernet header is the port's to check. Up to four bytes: a CRC-32 finds every such burst.
  const std::size_t ip = at(frame, 12) == 0x81 && at(frame, 13) == 0x00 ? 18 : 14;
  if (random_.chance(0.1)) {
    frame.resize(random_.between(static_cast<std::uint32_t>(ip), static_cast<std::uint32_t>(frame.size() - 1)));
    return;
  }
  const std::size_t span = frame.size() - ip;
  const std::size_t burst = std::min<std::size_t>(random_.between(1, 4), span);
  const std::size_t start = ip + random_.below(static_cast<std::uint32_t>(span - burst + 1));
  for (std::size_t i = 0; i < burst; ++i) {
    frame[start + i] ^= static_cast<std::byte>(random_.between(1, 255));
  }
}

void Network::send(std::uint32_t to, std::span<const std::byte> frame, Nanos now) {
  if (dead_) return;
  Nanos when = now + settings_.latency;
  if (settings_.jitter != 0) when += random_.below(static_cast<std::uint32_t>(settings_.jitter));
  when = std::max(when, last_in_order_[to]);
  if (random_.chance(settings_.drop) && may_harm(to, frame)) {
    ++harmed_;
    return;
  }
  if (random_.chance(settings_.corrupt) && may_harm(to, frame)) {
    ++harmed_;
    if (!is_by_reference(frame)) enqueue(to, frame, when, true);
    return;
  }
  if (random_.chance(settings_.duplicate)) {
    ++harmed_;
    enqueue(to, frame, when + random_.below(static_cast<std::uint32_t>(settings_.reorder_by)), false);
  }
  if (random_.chance(settings_.reorder) && may_harm(to, frame)) {
    ++harmed_;
    enqueue(to, frame, when + 1 + random_.below(static_cast<std::uint32_t>(settings_.reorder_by)), false);
    return;
  }
  last_in_order_[to] = when;
  enqueue(to, frame, when, false);
}

bool Network::receive(Nanos now, const std::function<void(const Arrival&, std::span<const std::byte>)>& take) {
  if (queue_.empty() || queue_.front().at > now) return false;
  std::pop_heap(queue_.begin(), queue_.end(), Later{});
  const Arrival arrival = queue_.back();
  queue_.pop_back();
  if (!dead_) take(arrival, slots_[arrival.slot]);
  free_slots_.push_back(arrival.slot);
  return true;
}

void Network::die() { dead_ = true; }

void Network::forget(Qpn qpn) {
  std::erase_if(queue_, [&](const Arrival& arrival) {
    if (dest_qpn_of(slots_[arrival.slot]) != qpn.value) return false;
    free_slots_.push_back(arrival.slot);
    return true;
  });
  std::make_heap(queue_.begin(), queue_.end(), Later{});
  std::erase_if(harm_, [&](const auto& entry) { return (entry.first >> 24 & 0xffffff) == qpn.value; });
}

}  // namespace uroce::sim
