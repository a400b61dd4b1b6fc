#include "proto/work/direct_placement.h"

#include "proto/work/message.h"

namespace uroce::proto {
namespace {

using memory::Access;

/// The mapped memory that takes the whole payload.
struct Place {
  memory::Span span;
  bool end_of_message = false;

  /// False: the memory is not one mapped piece.
  bool find(Context& context, const Qp& qp, Key key, std::uint64_t address, std::uint32_t bytes, Access need) {
    return context.resolve(key, qp.common.pd, address, bytes, need, span, qp.common.qpn) == memory::Verdict::kOk &&
           span.data != nullptr;
  }
};

bool find_place_of_write(Context& context, const Qp& qp, const wire::RxPacket& packet, Place& place) {
  const wire::OpcodeInfo& info = *packet.info;
  // A WRITE with immediate data writes nothing before a receive is taken, and the first packet names its own place.
  const bool due = packet.bth.psn == qp.responder.epsn && qp.responder.intake == Intake::kOpen &&
                   info.has(wire::kWrite) && !info.has(wire::kHasImmDt) && !starts(info);
  if (!due || !may_write(qp, packet) || !fits_write(qp, packet)) return false;
  place.end_of_message = ends(info);
  return place.find(context, qp, qp.write.rkey, qp.write.address, packet.payload_bytes, memory::kRemoteWrite);
}

bool find_place_of_read(Context& context, const Qp& qp, const wire::RxPacket& packet, Place& place) {
  const bool due = packet.bth.psn == qp.requester.una && qp.requester.una != qp.requester.max_psn &&
                   qp.common.state != QpState::kRtr;
  if (!due) return false;
  const Wqe& wqe = qp.wqe(qp.requester.head);
  const ResponsePart part = due_response(qp, wqe);
  if (wqe.kind != Kind::kRead || part.index == 0 || part.index >= wqe.psn_count) return false;
  const SgeCursor at = qp.requester.read_at;
  if (!part.matches(packet) || at.index >= wqe.num_sge) return false;
  const uroce_sge& sge = wqe.sges()[at.index];
  if (sge.length - at.offset < part.bytes) return false;
  place.end_of_message = part.last;
  return place.find(context, qp, Key{sge.lkey}, sge.addr + at.offset, part.bytes, memory::kLocalWrite);
}

wire::ParseVerdict verify_and_place_large(Context& context, const Qp& qp, wire::RxPacket& packet) {
  Place place;
  const bool request = packet.info->has(wire::kRequest);
  const bool found =
      request ? find_place_of_write(context, qp, packet, place) : find_place_of_read(context, qp, packet, place);
  if (!found) return wire::verify_icrc(packet);
  const wire::ParseVerdict verdict =
      wire::place_payload(packet, place.span.data, place.end_of_message ? kDeferredTail : 0);
  // Payload that did not arrive is stored once more, which fails.
  if (packet.placed() && !place.span.reached(0, packet.payload_bytes)) [[unlikely]]
    packet.state = wire::PacketState::kVerified;
  return verdict;
}

}  // namespace

wire::ParseVerdict verify_and_place(Context& context, const Qp& qp, wire::RxPacket& packet) {
  const bool worth_it = qp.common.type == QpType::kRc && packet.payload_bytes >= kMinDirectPlacement;
  return worth_it ? verify_and_place_large(context, qp, packet) : wire::verify_icrc(packet);
}

}  // namespace uroce::proto
