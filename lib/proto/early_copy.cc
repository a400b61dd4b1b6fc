#include "proto/early_copy.h"

#include "proto/requester.h"

namespace uroce::proto {
namespace {

using memory::Access;

std::byte* mapped(Core& core, const Qp& qp, Key key, std::uint64_t address, Access need) {
  memory::Span span;
  const memory::Verdict verdict = core.resolve(key, qp.pd, address, qp.mtu, need, span, qp.qpn);
  return verdict == memory::Verdict::kOk ? span.data : nullptr;
}

/// The one mapped piece of memory that takes the whole payload, or nullptr.
std::byte* place_of_write(Core& core, const Qp& qp, const wire::RxPacket& packet) {
  const bool due = packet.bth.psn == qp.epsn && qp.message == Message::kWrite && !qp.responder_dead;
  if (!due || !packet.info->has(wire::kWrite) || qp.mtu >= qp.write_left) return nullptr;
  return mapped(core, qp, qp.write_rkey, qp.write_address, memory::kRemoteWrite);
}

std::byte* place_of_read(Core& core, const Qp& qp, const wire::RxPacket& packet) {
  const bool due = packet.bth.psn == qp.una && qp.una != qp.max_psn && qp.state != QpState::kRtr;
  if (!due) return nullptr;
  const Wqe& wqe = qp.wqe(qp.sq_head);
  const std::uint32_t index = requester::psns_between(wqe.first(), qp.una);
  if (wqe.kind != Kind::kRead || index == 0 || index + 1 >= wqe.psn_count) return nullptr;
  const SgeCursor at = qp.read_at;
  if (at.index >= wqe.num_sge || wqe.sges()[at.index].length - at.offset < qp.mtu) return nullptr;
  const uroce_sge& sge = wqe.sges()[at.index];
  return mapped(core, qp, Key{sge.lkey}, sge.addr + at.offset, memory::kLocalWrite);
}

}  // namespace

bool close_icrc(Core& core, const Qp& qp, wire::RxPacket& packet) {
  std::byte* place = nullptr;
  if (qp.type == QpType::kRc && packet.payload_bytes == qp.mtu) {
    const bool request = packet.info->has(wire::kRequest);
    place = request ? place_of_write(core, qp, packet) : place_of_read(core, qp, packet);
  }
  return place != nullptr ? wire::place_payload(packet, place) : wire::check_icrc(packet);
}

}  // namespace uroce::proto
