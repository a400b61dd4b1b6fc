#include "proto/rc/destroyed_qps.h"

#include <cstring>

#include "proto/rc/responder.h"
#include "proto/state/context.h"
#include "wire/extended_headers.h"

namespace uroce::proto {

void DestroyedQps::note(const Qp& qp, Nanos now) {
  const std::uint32_t slot = next_++ & (kNotes - 1);
  Note& note = notes_[slot];
  if (note.until != 0) by_qpn_.erase(note.qpn);
  note = {.qpn = qp.common.qpn,
          .dest_qpn = qp.common.dest_qpn,
          .epsn = qp.responder.epsn,
          .msn = qp.responder.msn,
          .path_v4 = {qp.common.path_v4[0], qp.common.path_v4[1]},
          .peer_sender = qp.common.peer_sender,
          .pkey = qp.common.pkey,
          .service = qp.common.service,
          .listed = note.listed,
          .until = now + kLingerTime,
          .path = qp.path};
  std::memcpy(note.path_v6.data(), qp.path_v6, note.path_v6.size());
  by_qpn_.insert(qp.common.qpn, slot);
  if (qp.responder.owed == PendingAck::kAck)
    owe(slot, qp.responder.owed_newest ? qp.responder.epsn - 1 : qp.responder.owed_psn);
}

void DestroyedQps::forget(Qpn qpn) {
  const std::uint32_t slot = by_qpn_.find(qpn);
  if (slot == QpnTable::kNone) return;
  by_qpn_.erase(qpn);
  notes_[slot].until = 0;
  notes_[slot].owed = false;
}

void DestroyedQps::owe(std::uint32_t slot, Psn psn) {
  Note& note = notes_[slot];
  if (!note.owed || psn.after(note.owed_psn)) note.owed_psn = psn;
  note.owed = true;
  if (note.listed) return;
  note.listed = true;
  owing_.push_back(slot);
}

bool DestroyedQps::receive(Context& context, wire::RxPacket& packet) {
  const std::uint32_t slot = by_qpn_.find(packet.bth.dest_qpn);
  if (slot == QpnTable::kNone) return false;
  const Note& note = notes_[slot];
  const wire::OpcodeInfo& info = *packet.info;
  if (context.now >= note.until || info.service != note.service || !info.has(wire::kRequest)) return false;
  if (!info.has(wire::kSend | wire::kWrite) || !packet.bth.psn.before(note.epsn)) return false;
  if ((packet.bth.pkey & 0x7fff) != (note.pkey & 0x7fff)) return false;
  if (packet.sender != note.peer_sender || !is_on_path(packet, note.path_v4, note.path_v6.data())) return false;
  if (packet.icrc_pending() && wire::verify_icrc(packet) != wire::ParseVerdict::kOk) return false;
  ++context.counters.duplicate_request;
  if (packet.bth.ack_req) owe(slot, packet.bth.psn);
  return true;
}

void DestroyedQps::transmit(Context& context, TxBurst& burst) {
  while (!owing_.empty() && !burst.full()) {
    Note& note = notes_[owing_.back()];
    owing_.pop_back();
    note.listed = false;
    if (!note.owed) continue;
    note.owed = false;
    const wire::Bth bth{.opcode = wire::opcode(note.service, wire::Operation::kAcknowledge),
                        .pkey = note.pkey,
                        .dest_qpn = note.dest_qpn,
                        .psn = note.owed_psn};
    const std::size_t begin = burst.count;
    context.counters.acks_sent +=
        responder::send_acknowledge(context, burst, note.path, bth, wire::kAckUnlimited, note.msn);
    for (std::size_t i = begin; i < burst.count; ++i)
      burst.frames[i].sender = LocalDevices::sender(context.device, note.qpn);
  }
}

}  // namespace uroce::proto
