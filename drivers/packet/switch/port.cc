#include "drivers/packet/switch/port.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace uroce::ethernet {
namespace {

std::uint64_t as_number(const void* mac) {
  std::uint64_t number = 0;
  std::memcpy(&number, mac, sizeof(wire::Mac));
  return number;
}

bool is_group(const base::Frame& frame) { return (frame.data[0] & std::byte{1}) != std::byte{0}; }

}  // namespace

SwitchPort* Switch::port_of(std::uint64_t mac) const {
  const auto it = by_mac_.find(mac);
  return it == by_mac_.end() ? nullptr : it->second;
}

void Switch::flood(const SwitchPort& from, const base::Frame& frame, bool group) {
  for (SwitchPort* const port : ports_) {
    if (port == &from || (!group && port->filter_ != net::RxFilter::kPromiscuous)) continue;
    base::Frame copy;
    if (port->is_full() || pool_.allocate({&copy, 1}) == 0) {
      ++port->counters_.rx_dropped;
      continue;
    }
    std::memcpy(copy.data, frame.data, frame.length);
    copy.length = frame.length;
    copy.flags = frame.flags;
    copy.sender = frame.sender;
    port->put(copy);
  }
}

SwitchPort::SwitchPort(Switch& joined, const wire::Mac& mac)
    : switch_(joined), mac_(mac), wake_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  switch_.ports_.push_back(this);
  switch_.by_mac_.emplace(as_number(mac_.data()), this);
}

SwitchPort::~SwitchPort() {
  for (; tail_ != head_; ++tail_) discard({&ring_[tail_ % kSlots], 1});
  std::erase(switch_.ports_, this);
  switch_.by_mac_.erase(as_number(mac_.data()));
  if (wake_fd_ >= 0) ::close(wake_fd_);
}

std::size_t SwitchPort::receive(std::span<base::Frame> frames) {
  const std::size_t count = std::min<std::size_t>(frames.size(), head_ - tail_);
  for (base::Frame& frame : frames.first(count)) frame = ring_[tail_++ % kSlots];
  return count;
}

void SwitchPort::put(const base::Frame& frame) {
  base::Frame& slot = ring_[head_++ % kSlots];
  slot = frame;
  // Only of a packet that a transport built are the checksums known to be good.
  slot.flags = frame.flags & (base::kIcrcGood | base::kByReference);
  if (slot.flags != 0) slot.flags |= base::kIpChecksumGood;
  const base::WireCost on_wire = base::wire_cost(frame);
  counters_.rx_packets += on_wire.packets;
  counters_.rx_bytes += on_wire.bytes;
}

std::size_t SwitchPort::transmit(std::span<base::Frame> frames) {
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const base::Frame& frame = frames[i];
    const bool whole = frame.length >= sizeof(wire::Mac);
    const base::WireCost on_wire = base::wire_cost(frame);
    const bool group = whole && is_group(frame);
    SwitchPort* const to = whole && !group ? switch_.port_of(as_number(frame.data)) : nullptr;
    if (to != nullptr && to != this) {
      if (to->is_full()) return i;
      to->put(frame);
    } else {
      const bool named = (frame.flags & base::kByReference) != 0;  // for one receiver, or none
      if (whole && to == nullptr && !named) switch_.flood(*this, frame, group);
      discard({&frames[i], 1});
    }
    counters_.tx_packets += on_wire.packets;
    counters_.tx_bytes += on_wire.bytes;
  }
  return frames.size();
}

}  // namespace uroce::ethernet
