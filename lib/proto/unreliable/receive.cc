#include "proto/unreliable/receive.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "proto/work/completion_counters.h"
#include "proto/work/gather.h"
#include "proto/work/message.h"
#include "proto/work/receive_queue.h"
#include "proto/work/teardown.h"
#include "wire/bytes.h"
#include "wire/extended_headers.h"
#include "wire/network_headers.h"
#include "wire/opcode.h"
#include "wire/packet.h"

namespace uroce::proto::unreliable {
namespace {

constexpr std::uint32_t kGrhBytes = 40;
constexpr std::uint32_t kLargestDatagram = 4096;

void drop_message(Qp& qp, std::uint64_t& reason) {
  ++reason;
  qp.responder.message = MessageInProgress::kNone;
}

// ---------------------------------------------------------------- UC

void receive_send(Context& context, Qp& qp, const wire::RxPacket& packet) {
  const wire::OpcodeInfo& info = *packet.info;
  if (starts(info)) {
    if (!claim_receive(context, qp)) return;
    qp.responder.message_bytes = 0;
  }
  const ReceiveWqe& wqe = qp.receive;
  switch (scatter(context, wqe.pd, wqe.sge, wqe.num_sge, qp.receives.at, packet.payload, packet.payload_bytes)) {
    case ScatterResult::kOk: break;
    case ScatterResult::kNoRoom: return drop_message(qp, context.counters.drop_too_long);
    case ScatterResult::kNoAccess: return fail_memory(context, qp);
  }
  qp.responder.message_bytes += packet.payload_bytes;
  qp.responder.message = MessageInProgress::kSend;
  if (!ends(info)) return;
  qp.responder.message = MessageInProgress::kNone;
  ++context.counters.rdma_recvs;
  deliver(context, qp, packet, UROCE_WC_RECV, qp.responder.message_bytes);
}

/// Takes the RETH of the first packet, and checks the whole range.
bool begin_write(Context& context, Qp& qp, const wire::RxPacket& packet) {
  const wire::Reth reth = wire::Reth::parse(packet.bth_start + packet.info->reth);
  const bool only = packet.info->has(wire::kOnly);
  if (reth.length > kMaxMessage || (only ? reth.length != packet.payload_bytes : reth.length <= qp.common.mtu())) {
    return false;
  }
  memory::Span span;
  if (reth.length != 0 && context.resolve(reth.rkey, qp.common.pd, reth.address, reth.length, memory::kRemoteWrite,
                                          span, qp.common.qpn) != memory::Verdict::kOk) {
    return false;
  }
  qp.write = reth;
  qp.responder.message_bytes = 0;
  return true;
}

/// Writes the payload. False: the memory is not writable.
bool store(Context& context, const Qp& qp, const wire::RxPacket& packet) {
  if (packet.payload_bytes == 0) return true;
  memory::Span span;
  return context.resolve(qp.write.rkey, qp.common.pd, qp.write.address, packet.payload_bytes, memory::kRemoteWrite,
                         span, qp.common.qpn) == memory::Verdict::kOk &&
         span.write(0, packet.payload, packet.payload_bytes);
}

void receive_write(Context& context, Qp& qp, const wire::RxPacket& packet) {
  const wire::OpcodeInfo& info = *packet.info;
  const bool last = ends(info);
  if ((qp.responder.access & memory::kRemoteWrite) == 0 || (starts(info) && !begin_write(context, qp, packet))) {
    return drop_message(qp, context.counters.resp_remote_access_errors);
  }
  if (!fits_write(packet, qp.write.length)) return drop_message(qp, context.counters.drop_unexpected);
  if (info.has(wire::kHasImmDt) && !claim_receive(context, qp)) {
    qp.responder.message = MessageInProgress::kNone;
    return;
  }
  if (!store(context, qp, packet)) return drop_message(qp, context.counters.resp_remote_access_errors);
  qp.write.address += packet.payload_bytes;
  qp.write.length -= packet.payload_bytes;
  qp.responder.message_bytes += packet.payload_bytes;
  qp.responder.message = MessageInProgress::kWrite;
  if (!last) return;
  qp.responder.message = MessageInProgress::kNone;
  ++context.counters.rx_write_requests;
  if (qp.responder.counted) count_done(qp, CountedOperation::kRemoteWrite, qp.responder.message_bytes);
  if (!info.has(wire::kHasImmDt)) return;
  deliver(context, qp, packet, UROCE_WC_RECV_RDMA_WITH_IMM, qp.responder.message_bytes);
}

// ---------------------------------------------------------------- UD

/// The 40 bytes before the payload: the IPv6 header, or the IPv4 header in the last 20 (annex A17: RoCEv2).
std::array<std::byte, kGrhBytes> header_area(const wire::RxPacket& packet) {
  // Copies of constant size: for a variable size the compiler emits `rep movs`, which is slow to start.
  std::array<std::byte, kGrhBytes> area{};
  if (packet.ip_bytes == kGrhBytes) {
    std::memcpy(area.data(), packet.ip, kGrhBytes);
    return area;
  }
  std::byte* const at = area.data() + kGrhBytes - wire::Ipv4Header::kBytes;
  std::memcpy(at, packet.ip, wire::Ipv4Header::kBytes);
  // A frame that never left the machine may lack the checksum.
  if (wire::load16(at + 10) == 0) wire::store16(at + 10, wire::Ipv4Header::parse(at).right_checksum());
  return area;
}

/// The service level of a datagram without a VLAN tag, as mlx5 reports it: UDP, and IPv6 or IPv4.
std::uint8_t kind_of_packet(const wire::RxPacket& packet) {
  return UROCE_SL_UDP | (packet.ip_bytes == kGrhBytes ? UROCE_SL_IPV6 : UROCE_SL_IPV4);
}

/// Stores headers and payload in the receive WQE; usually in its first element, whose key is then resolved once.
ScatterResult deposit(Context& context, Qp& qp, const wire::RxPacket& packet) {
  const ReceiveWqe& wqe = qp.receive;
  const std::uint32_t bytes = kGrhBytes + packet.payload_bytes;
  const auto area = header_area(packet);
  if (wqe.num_sge != 0 && wqe.sge[0].length >= bytes) [[likely]] {
    memory::Span span;
    const uroce_sge& sge = wqe.sge[0];
    const auto verdict = context.resolve(Key{sge.lkey}, wqe.pd, sge.addr, bytes, memory::kLocalWrite, span);
    if (verdict != memory::Verdict::kOk) [[unlikely]]
      return ScatterResult::kNoAccess;
    const bool good =
        span.write(0, area.data(), kGrhBytes) && span.write(kGrhBytes, packet.payload, packet.payload_bytes);
    return good ? ScatterResult::kOk : ScatterResult::kNoAccess;
  }
  if (!has_room(wqe, bytes)) return ScatterResult::kNoRoom;
  const auto put = [&](const std::byte* from, std::uint32_t count) {
    return scatter(context, wqe.pd, wqe.sge, wqe.num_sge, qp.receives.at, from, count);
  };
  const ScatterResult headers = put(area.data(), kGrhBytes);
  return headers == ScatterResult::kOk ? put(packet.payload, packet.payload_bytes) : headers;
}

}  // namespace

bool claim_receive(Context& context, Qp& qp) {
  qp.receives.at = {};
  if (qp.responder.have_receive) return true;
  switch (take_receive(context, qp)) {
    case FetchResult::kOk: return true;
    case FetchResult::kNone: ++context.counters.drop_no_receive; return false;
    case FetchResult::kBad:
      fail_receive(context, qp, qp.receive.failure);
      fail_fatally(context, qp);
      return false;
  }
  return false;
}

void fail_memory(Context& context, Qp& qp) {
  fail_receive(context, qp, UROCE_FAIL_RECEIVE_MEMORY);
  fail_fatally(context, qp);
}

void receive_connected(Context& context, Qp& qp, const wire::RxPacket& packet) {
  const wire::OpcodeInfo& info = *packet.info;
  const bool lost = packet.bth.psn != qp.responder.epsn;
  if (lost) {
    ++qp.counters.out_of_sequence;
    drop_message(qp, context.counters.out_of_sequence);
  }
  qp.responder.epsn = packet.bth.psn + 1;
  if (starts(info)) qp.responder.message = MessageInProgress::kNone;  // the last message was cut short
  const MessageInProgress kind = info.has(wire::kSend) ? MessageInProgress::kSend : MessageInProgress::kWrite;
  if (!well_formed(qp, packet, kind)) {
    // Usually the rest of a message that was dropped.
    return drop_message(qp, context.counters.drop_unexpected);
  }
  return kind == MessageInProgress::kSend ? receive_send(context, qp, packet) : receive_write(context, qp, packet);
}

void receive_datagram(Context& context, Qp& qp, const wire::RxPacket& packet) {
  const wire::Deth deth = wire::Deth::parse(packet.bth_start + packet.info->deth);
  if (qp.settings.block_own_multicast && packet.multicast && deth.source_qpn == qp.common.qpn &&
      packet.source_mac == context.config.mac) {
    return;
  }
  if (deth.qkey != qp.qkey) {
    ++context.counters.drop_bad_qkey;
    return;
  }
  if (packet.payload_bytes > kLargestDatagram) {
    ++context.counters.drop_too_long;
    return;
  }
  if (!claim_receive(context, qp)) return;
  switch (deposit(context, qp, packet)) {
    case ScatterResult::kOk: break;
    case ScatterResult::kNoRoom: ++context.counters.drop_too_long; return;
    case ScatterResult::kNoAccess: return fail_memory(context, qp);
  }
  ++context.counters.rdma_recvs;
  uroce_cqe cqe = context.make_cqe(qp, qp.receive.wr_id);
  cqe.opcode = UROCE_WC_RECV;
  cqe.byte_len = kGrhBytes + packet.payload_bytes;
  cqe.wc_flags = UROCE_WC_GRH;
  cqe.src_qp = deth.source_qpn.value;
  cqe.vlan_sl = static_cast<std::uint8_t>(packet.vlan >> 13);
  cqe.sl = packet.vlan != 0 ? cqe.vlan_sl : kind_of_packet(packet);
  cqe.vlan_id = packet.vlan & 0xfff;
  if (packet.info->has(wire::kHasImmDt)) {
    cqe.wc_flags |= UROCE_WC_WITH_IMM;
    cqe.imm_data = wire::ImmDt::parse(packet.bth_start + packet.info->immdt).value;
  }
  complete_receive(context, qp, cqe, packet.bth.solicited);
}

}  // namespace uroce::proto::unreliable
