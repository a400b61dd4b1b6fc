#include "proto/work/by_reference.h"

#include <algorithm>
#include <cstring>

namespace uroce::proto {
namespace {

std::uint32_t packets_for(const Qp& qp, std::uint32_t bytes) { return ((bytes - 1) >> qp.common.mtu_shift) + 1; }

/// Most packets that one reference may take, at least one.
std::uint32_t most_packets(const Qp& qp, std::uint32_t budget) {
  return std::clamp<std::uint32_t>(budget, 1, std::max(kMaxReference >> qp.common.mtu_shift, 1u));
}

/// Waits for the pages of the payload, as its owner: a program that keeps others waiting for its memory is charged
/// for it (Transport::busy_with()), and not the one that receives. Pages that go after this are charged to the
/// owner, too: MemoryInUse::copy_from() says what is copied.
void touch(Context& context, const Qp& receiver, Context& from, const base::PayloadReference& payload) {
  constexpr std::size_t kPage = 4096;
  context.note(0);
  from.note(mark_of(PdId{payload.pd}));
  const std::byte* const data = context.source.data;
  const auto read = [data](std::size_t at) {
    static_cast<void>(*static_cast<const volatile std::byte*>(data + at));
  };
  for (std::size_t at = 0; at < payload.bytes; at += kPage) read(at);
  read(payload.bytes - 1);
  from.note(0);
  context.note(mark_of(receiver.common.pd));
  if (context.source.loss == nullptr || !context.source.loss->in_memory) return;
  context.in_use.copy_from(data, payload.bytes, 0);
  from.in_use.copy_from(data, payload.bytes, mark_of(PdId{payload.pd}));
}

}  // namespace

std::optional<base::PayloadReference> refer(Context& context, Qp& qp, const Wqe& wqe, std::uint32_t budget,
                                            DataPart& part) {
  const bool again = qp.requester.psn.before(qp.requester.max_psn);
  const bool limited = qp.requester.paced || qp.settings.user_limit != nullptr;
  if (again || limited || wqe.is_inline()) return {};
  SgeCursor& at = qp.requester.send_at;
  while (at.index < wqe.num_sge && at.offset == wqe.sges()[at.index].length) at = {at.index + 1, 0};
  if (at.index >= wqe.num_sge) return {};
  const uroce_sge& sge = wqe.sges()[at.index];

  const std::uint32_t window = qp.congestion.window(), in_flight = qp.congestion.in_flight();
  const std::uint32_t room = window > in_flight ? (window - in_flight) / qp.full_packet_cost() : 0;
  const std::uint32_t left = wqe.length - part.offset;
  std::uint32_t bytes = std::min(left, most_packets(qp, std::min(budget, room)) << qp.common.mtu_shift);
  if (const std::uint32_t contiguous = sge.length - at.offset; bytes > contiguous)
    bytes = contiguous & ~(qp.common.mtu() - 1);
  if (bytes == 0) return {};
  const std::uint64_t address = sge.addr + at.offset;
  if (context.resolve(Key{sge.lkey}, qp.common.pd, address, bytes, 0, context.source) != memory::Verdict::kOk ||
      context.source.data == nullptr)
    return {};
  part.bytes = bytes;
  part.packets = packets_for(qp, bytes);
  part.last = bytes == left;
  return base::PayloadReference{.address = address,
                                .key = sge.lkey,
                                .pd = qp.common.pd.value,
                                .bytes = bytes,
                                .life = qp.life,
                                .packets = part.packets};
}

std::optional<base::PayloadReference> refer(Context& context, const Qp& qp, const Resource& resource,
                                            std::uint64_t address, std::uint32_t bytes, std::uint32_t budget) {
  if (resource.replay || bytes < kMinReference || qp.settings.user_limit != nullptr) return {};
  // The requester may send an invalidation of this key behind the READ, which must find its answer complete.
  if (!context.memory.outlasts_work_requests(Key{resource.rkey})) return {};
  bytes = std::min(bytes, most_packets(qp, budget) << qp.common.mtu_shift);
  if (context.resolve(Key{resource.rkey}, PdId{resource.pd}, address, bytes, memory::kRemoteRead, context.source,
                      qp.common.qpn) != memory::Verdict::kOk ||
      context.source.data == nullptr)
    return {};
  return base::PayloadReference{.address = address,
                                .key = resource.rkey,
                                .pd = resource.pd,
                                .bytes = bytes,
                                .life = qp.answers_life,
                                .access = memory::kRemoteRead,
                                .packets = packets_for(qp, bytes)};
}

bool resolve_reference(Context& context, const Qp& qp, wire::RxPacket& packet) {
  base::PayloadReference reference;
  if (packet.payload_bytes != sizeof reference) return false;
  std::memcpy(&reference, packet.payload, sizeof reference);
  Context* const from = context.local->context_of(packet.sender);
  if (from == nullptr) return false;
  const Qpn qpn = LocalDevices::qpn_of(packet.sender);
  const std::uint32_t sender = from->by_qpn.find(qpn);
  if (sender == QpnTable::kNone) return false;
  const Qp& sent_by = from->qps[sender];
  const bool answer = (reference.access & memory::kRemoteRead) != 0;
  if ((answer ? sent_by.answers_life : sent_by.life) != reference.life) return false;
  if (from->resolve(Key{reference.key}, PdId{reference.pd}, reference.address, reference.bytes, reference.access,
                    context.source, qpn) != memory::Verdict::kOk ||
      context.source.data == nullptr)
    return false;
  touch(context, qp, *from, reference);
  packet.payload = context.source.data;
  packet.payload_bytes = reference.bytes;
  packet.psns = static_cast<std::uint16_t>(reference.packets);
  // Ends with different MTUs disagree about the number of packets: no length is valid for 0 of them, and the packet
  // is refused as its parts would be.
  if (packets_for(qp, reference.bytes) != reference.packets) packet.psns = 0;
  return true;
}

void end_reference(Context& context, wire::RxPacket& packet) {
  context.in_use.end_copy();
  context.local->context_of(packet.sender)->in_use.end_copy();
  packet.psns = 1;
}

}  // namespace uroce::proto
