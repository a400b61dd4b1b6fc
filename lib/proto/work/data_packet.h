// One packet of a SEND or WRITE of a connected service (IBTA vol. 1, 9.7.3).
#pragma once

#include <cstdint>

#include "proto/work/gather.h"
#include "proto/work/wqe.h"
#include "wire/extended_headers.h"

namespace uroce::proto {

/// The part of a message that a packet carries, or that takes several packets (by_reference.h).
struct DataPart {
  std::uint32_t offset = 0, bytes = 0;
  bool first = false, last = false;
  std::uint32_t packets = 1;
};

inline DataPart part_of(const Qp& qp, const Wqe& wqe) {
  const std::uint32_t offset = psns_between(wqe.first(), qp.requester.psn) << qp.common.mtu_shift;
  const std::uint32_t left = wqe.length - offset;
  const bool last = left <= qp.common.mtu();
  return {offset, last ? left : qp.common.mtu(), offset == 0, last};
}

inline wire::Operation operation_of(const SendRow& row, const DataPart& part) {
  if (part.first) return part.last ? row.only : row.first;
  return part.last ? row.last : row.middle;
}

/// The extended headers of a SEND or WRITE: XRCETH and RETH first, immediate data or IETH last.
inline void emit_extended(std::byte* at, const Qp& qp, const Wqe& wqe, bool reth, SendRow::Extra extra) {
  if (qp.common.service == wire::Service::kXrc) {
    wire::XrcEth{wqe.remote_srqn}.emit(at);
    at += wire::XrcEth::kBytes;
  }
  if (reth) {
    wire::Reth{wqe.remote_addr, Key{wqe.rkey}, wqe.length}.emit(at);
    at += wire::Reth::kBytes;
  }
  if (extra == SendRow::Extra::kImmediate) wire::ImmDt{wqe.imm_data}.emit(at);
  if (extra == SendRow::Extra::kInvalidate) wire::Ieth{Key{wqe.imm_data}}.emit(at);
}

/// Whether the message takes a receive from the peer's queue.
inline bool completes_receive(const Wqe& wqe) {
  return wqe.kind == Kind::kSend || send_row(wqe.opcode).extra == SendRow::Extra::kImmediate;
}

inline std::size_t xrceth_bytes(const Qp& qp) {
  return qp.common.service == wire::Service::kXrc ? wire::XrcEth::kBytes : 0;
}

/// Appends the payload. False: an element of the list is not accessible.
template <class Builder>
[[gnu::always_inline]] inline bool add_payload(Context& context, Qp& qp, const Wqe& wqe, const DataPart& part,
                                               Builder& builder) {
  if (wqe.is_inline()) {
    builder.payload(wqe.inline_data() + part.offset, part.bytes);
    return true;
  }
  return gather(context, qp.common.pd, wqe.sges(), wqe.num_sge, qp.requester.send_at, part.bytes, builder);
}

/// Starts the packet at requester.psn, with `payload` bytes after its headers. False: the port's MTU was lowered
/// and it fits no frame.
[[gnu::always_inline]] inline bool start_data(PacketBuilder& builder, base::Frame& frame, const Qp& qp,
                                              const Wqe& wqe, const DataPart& part, bool ask,
                                              std::uint32_t payload) {
  const SendRow& row = send_row(wqe.opcode);
  const bool reth = part.first && wqe.kind == Kind::kWrite;
  const bool extra = part.last && row.extra != SendRow::Extra::kNone;
  const wire::Bth bth{
      .opcode = wire::opcode(qp.common.service, operation_of(row, part)),
      // It means something only in a packet that completes a receive (IBTA vol. 1, 9.2.3).
      .solicited = part.last && (wqe.flags & UROCE_SEND_SOLICITED) != 0 && completes_receive(wqe),
      .pkey = qp.common.pkey,
      .dest_qpn = qp.common.dest_qpn,
      .ack_req = ask,
      .psn = qp.requester.psn,
  };
  const std::size_t extended =
      xrceth_bytes(qp) + (reth ? wire::Reth::kBytes : 0) + (extra ? wire::ImmDt::kBytes : 0);
  if (!builder.start(frame, qp.path, bth, extended, payload)) [[unlikely]]
    return false;
  emit_extended(builder.extended(), qp, wqe, reth, extra ? row.extra : SendRow::Extra::kNone);
  return true;
}

/// Builds the packet at requester.psn. Returns the failure of its WQE, or 0: its memory is not
/// accessible, or the port's MTU was lowered and the packet fits no frame.
[[gnu::always_inline]] inline std::uint8_t build_data(Context& context, Qp& qp, const Wqe& wqe,
                                                      const DataPart& part, bool ask, TxBurst& burst) {
  PacketBuilder builder(context.crc, context.config.offload_ip_checksum);
  if (!start_data(builder, burst.frames[burst.count], qp, wqe, part, ask, part.bytes)) [[unlikely]]
    return UROCE_FAIL_PORT_MTU;
  builder.seal(qp.header_crc);
  if (!add_payload(context, qp, wqe, part, builder)) return UROCE_FAIL_SEND_MEMORY;
  builder.finish();
  ++burst.count;
  return 0;
}

}  // namespace uroce::proto
