#include "proto/rc/direct_placement.h"

#include "proto/work/message.h"

namespace uroce::proto {
namespace {

/// The mapped memory that takes the whole payload.
struct Place {
  memory::Span span;
  bool end_of_message = false;
};

/// A WRITE with immediate data writes nothing before a receive is taken, and the first packet names its own place.
bool find_place_of_write(const wire::RxPacket& packet, const Plan& plan, Place& place) {
  if (plan.takes_receive || starts(*packet.info)) return false;
  place.span = plan.target.memory;
  place.end_of_message = ends(*packet.info);
  return true;
}

bool find_place_of_read(Context& context, const Qp& qp, const ResponsePart& part, Place& place) {
  const SgeCursor at = qp.requester.read_at;
  const Wqe& wqe = qp.wqe(qp.requester.head);
  if (part.index == 0 || at.index >= wqe.num_sge) return false;
  const uroce_sge& sge = wqe.sges()[at.index];
  if (sge.length - at.offset < part.bytes) return false;
  place.end_of_message = part.last;
  return context.resolve(Key{sge.lkey}, qp.common.pd, sge.addr + at.offset, part.bytes, memory::kLocalWrite,
                         place.span) == memory::Verdict::kOk;
}

bool find_place(Context& context, const Qp& qp, const wire::RxPacket& packet, const Plan& plan, Place& place) {
  switch (plan.action) {
    case Action::kWrite: return find_place_of_write(packet, plan, place);
    case Action::kReadResponse: return find_place_of_read(context, qp, plan.part, place);
    default: return false;
  }
}

}  // namespace

wire::ParseVerdict verify_and_place(Context& context, const Qp& qp, const Plan& plan, wire::RxPacket& packet) {
  Place place;
  const bool found = find_place(context, qp, packet, plan, place) && place.span.data != nullptr;
  if (!found) return wire::verify_icrc(packet);
  const wire::ParseVerdict verdict =
      wire::place_payload(packet, place.span.data, place.end_of_message ? kDeferredTail : 0);
  // Payload that did not arrive is stored once more, which fails.
  if (packet.placed() && !place.span.reached(0, packet.payload_bytes)) [[unlikely]]
    packet.state = wire::PacketState::kVerified;
  return verdict;
}

}  // namespace uroce::proto
