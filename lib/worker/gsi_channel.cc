#include "worker/gsi_channel.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "cm/mad.h"
#include "wire/extended_headers.h"
#include "wire/frame_template.h"
#include "wire/icrc.h"

namespace uroce::worker {
namespace {

constexpr std::uint8_t kUdSendOnly = wire::opcode(wire::Service::kUd, wire::Operation::kSendOnly);

}  // namespace

std::size_t emit_gsi_frame(const wire::PathAddress& path, std::span<const std::byte, kMadBytes> mad, Psn psn,
                           std::span<std::byte> to) {
  const wire::FrameTemplate headers(path);
  constexpr std::size_t kCovered = wire::kBthBytes + wire::Deth::kBytes + kMadBytes;
  const std::size_t length = headers.header_bytes() + kCovered + wire::kIcrcBytes;
  if (to.size() < length) return 0;
  std::byte* at = to.data() + headers.emit(to.data(), kCovered + wire::kIcrcBytes);
  wire::Bth bth;
  bth.opcode = kUdSendOnly;
  bth.dest_qpn = Qpn{wire::kGsiQpn};
  bth.psn = psn;
  bth.emit(at);
  at += wire::kBthBytes;
  wire::Deth{wire::kGsiQkey, Qpn{wire::kGsiQpn}}.emit(at);
  at += wire::Deth::kBytes;
  std::memcpy(at, mad.data(), mad.size());
  at += mad.size();
  wire::store_raw(at, wire::icrc_of(to.data() + headers.ip_offset(), headers.ip_bytes(), kCovered));
  return length;
}

void GsiPort::count(std::uint64_t GsiCounters::*which) {
  std::lock_guard lock(counters_mutex_);
  ++(counters_.*which);
}

void GsiPort::receive(const wire::RxPacket& packet, const net::LinkStack& link) {
  // Only these are known to hold a DETH.
  if (packet.bth.opcode != kUdSendOnly) return count(&GsiCounters::bad_packet);
  const wire::Deth deth = wire::Deth::parse(packet.bth_start + wire::kBthBytes);
  // MADs of the general services come from QP 1 (IBTA vol. 1, 13.5.4.2). Without this check every UD QP that knows
  // the Q_Key could end connections. The P_Key is compared with that of the port (IBTA
  // vol. 1, C9-42).
  const bool good = packet.bth.dest_qpn.value == wire::kGsiQpn &&
                    (packet.bth.pkey & 0x7fff) == (wire::kDefaultPkey & 0x7fff) && deth.qkey == wire::kGsiQkey &&
                    deth.source_qpn.value == wire::kGsiQpn && packet.payload_bytes == kMadBytes &&
                    !packet.multicast && link.is_local(packet.destination());
  if (!good) return count(&GsiCounters::bad_packet);
  cm::Message message;
  message.peer = {packet.destination(), packet.source()};
  if (!cm::parse_mad(cm::Mad(packet.payload, kMadBytes), message)) {
    return count(&GsiCounters::bad_mad);
  }
  count(&GsiCounters::received);
  if (!inbox_.put(message)) count(&GsiCounters::overflow);
}

void GsiPort::send(const cm::Message& message, const wire::PathAddress& path) {
  Outgoing out{path, {}, 0};
  cm::emit_mad(message, out.mad);
  if (!outbox_.put(out)) count(&GsiCounters::overflow);
}

void GsiPort::advance(Nanos now) {
  if (now >= next_timeout()) neighbours_changed();
}

void GsiPort::neighbours_changed() {
  if (held_.empty()) return;
  held_to_try_ = held_.size();
}

bool GsiPort::next_outgoing(Outgoing& out) {
  if (held_to_try_ != 0) {
    --held_to_try_;
    out = held_.front();
    held_.pop_front();
    return true;
  }
  if (next_ == sending_.size()) {
    next_ = 0;
    outbox_.take(sending_);
    if (sending_.empty()) return false;
  }
  out = sending_[next_++];
  return true;
}

std::size_t GsiPort::next_frame(std::span<std::byte> to, net::LinkStack& link, Nanos now) {
  for (Outgoing out; next_outgoing(out);) {
    if (out.since == 0) out.since = now;
    const net::Resolution resolution =
        link.resolve(out.path.dest, now, out.path.dest_mac, out.path.vlan.value_or(0) & 0xfff);
    if (resolution == net::Resolution::kResolved) {
      const std::size_t length = emit_gsi_frame(out.path, out.mad, psn_, to);
      psn_ = psn_ + 1;
      count(&GsiCounters::sent);
      if (length != 0) return length;
      continue;
    }
    const bool hopeless = resolution != net::Resolution::kPending || now - out.since >= kNeighbourLimit;
    if (hopeless || held_.size() >= kMaxHeld) {
      count(&GsiCounters::unresolved);
      continue;
    }
    held_.push_back(out);
  }
  return 0;
}

GsiCounters GsiPort::counters() const {
  std::lock_guard lock(counters_mutex_);
  return counters_;
}

}  // namespace uroce::worker
