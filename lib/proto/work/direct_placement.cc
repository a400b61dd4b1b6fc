#include "proto/work/direct_placement.h"

#include "proto/work/message.h"

namespace uroce::proto {
namespace {

using memory::Access;

/// The mapped memory; `data` is nullptr if there is none.
memory::Span mapped(Context& context, const Qp& qp, Key key, std::uint64_t address, std::uint32_t bytes,
                    Access need) {
  memory::Span span;
  const memory::Verdict verdict = context.resolve(key, qp.common.pd, address, bytes, need, span, qp.common.qpn);
  return verdict == memory::Verdict::kOk ? span : memory::Span{};
}

/// The mapped piece of memory that takes the whole payload, if a single one does.
struct Place {
  memory::Span at;
  bool end_of_message = false;
};

Place place_of_write(Context& context, const Qp& qp, const wire::RxPacket& packet) {
  const wire::OpcodeInfo& info = *packet.info;
  // A WRITE with immediate data writes nothing before a receive is taken, and the first packet names its own place.
  const bool due = packet.bth.psn == qp.responder.epsn && qp.responder.intake == Intake::kOpen &&
                   info.has(wire::kWrite) && !info.has(wire::kHasImmDt) && !starts(info);
  if (!due || !may_write(qp, packet) || !fits_write(qp, packet)) return {};
  return {mapped(context, qp, qp.write.rkey, qp.write.address, packet.payload_bytes, memory::kRemoteWrite),
          ends(info)};
}

Place place_of_read(Context& context, const Qp& qp, const wire::RxPacket& packet) {
  const bool due = packet.bth.psn == qp.requester.una && qp.requester.una != qp.requester.max_psn &&
                   qp.common.state != QpState::kRtr;
  if (!due) return {};
  const Wqe& wqe = qp.wqe(qp.requester.head);
  const ResponsePart part = due_response(qp, wqe);
  if (wqe.kind != Kind::kRead || part.index == 0 || part.index >= wqe.psn_count) return {};
  const SgeCursor at = qp.requester.read_at;
  if (!part.matches(packet) || at.index >= wqe.num_sge) return {};
  const uroce_sge& sge = wqe.sges()[at.index];
  if (sge.length - at.offset < part.bytes) return {};
  return {mapped(context, qp, Key{sge.lkey}, sge.addr + at.offset, part.bytes, memory::kLocalWrite), part.last};
}

}  // namespace

wire::ParseVerdict verify_and_place(Context& context, const Qp& qp, wire::RxPacket& packet) {
  Place place;
  if (qp.common.type == QpType::kRc && packet.payload_bytes >= kMinDirectPlacement) {
    const bool request = packet.info->has(wire::kRequest);
    place = request ? place_of_write(context, qp, packet) : place_of_read(context, qp, packet);
  }
  if (place.at.data == nullptr) return wire::verify_icrc(packet);
  const wire::ParseVerdict verdict =
      wire::place_payload(packet, place.at.data, place.end_of_message ? kDeferredTail : 0);
  // Payload that did not arrive is stored once more, which fails.
  if (packet.placed() && !place.at.reached(0, packet.payload_bytes)) [[unlikely]]
    packet.state = wire::PacketState::kVerified;
  return verdict;
}

}  // namespace uroce::proto
