#include "proto/unreliable/send.h"

#include "base/probe.h"
#include "proto/unreliable/raw_packet.h"
#include "proto/work/data_packet.h"
#include "proto/work/held_completions.h"
#include "proto/work/local_work.h"
#include "proto/work/send_completion.h"
#include "proto/work/teardown.h"
#include "wire/extended_headers.h"
#include "wire/frame_template.h"

namespace uroce::proto::unreliable {
namespace {

constexpr std::uint32_t kOwnQkey = 0x80000000;  // this bit: the QP's own Q_Key (IBTA vol. 1, 3.5.3)
constexpr std::size_t kUdpHeader = 8;

/// Accounts for a packet; `last`: its WQE is complete.
void sent(Context& context, Qp& qp, const Wqe& wqe, bool last, std::uint32_t frame_bytes) {
  UROCE_PROBE(transmit, qp.common.qpn.value, wqe.opcode, qp.requester.psn.value(), frame_bytes);
  ++qp.requester.psn;
  if (is_raw(qp.common.type)) {
    ++context.counters.sent_frames;
  } else {
    ++context.counters.sent_pkts;
    context.counters.sent_bytes += frame_bytes;
  }
  ++qp.counters.sent_pkts;
  if (!last) return;
  ++qp.requester.cursor;
  qp.requester.send_at = {};
  complete_send(context, qp);
}

/// Builds the packet of a datagram. Returns its failure, or 0.
std::uint8_t build_datagram(Context& context, Qp& qp, const Wqe& wqe, TxBurst& burst) {
  const AddressHandle* const handle = context.address_handles.find(AhId{wqe.ah}, qp.common.pd);
  if (handle == nullptr) {  // or it belongs to another PD (IBTA vol. 1, 10.2.3, C10-10)
    ++context.counters.bad_wqe_ah;
    return UROCE_FAIL_ADDRESS_HANDLE;
  }
  const bool immediate = send_row(wqe.opcode).extra == SendRow::Extra::kImmediate;
  const Qpn dest{wqe.ud.remote_qpn & 0xffffff};
  const wire::Bth bth{
      .opcode = wire::opcode(wire::Service::kUd, send_row(wqe.opcode).only),
      .solicited = (wqe.flags & UROCE_SEND_SOLICITED) != 0,
      .pkey = qp.common.pkey,
      .dest_qpn = dest,
      .psn = qp.requester.psn,
  };
  base::Frame& frame = burst.frames[burst.count];
  PacketBuilder builder(context.crc, context.config.offload_ip_checksum);
  const std::size_t extended = wire::Deth::kBytes + (immediate ? wire::ImmDt::kBytes : 0);
  if (!builder.start(frame, handle->path, bth, extended, wqe.length)) return UROCE_FAIL_PORT_MTU;
  if (handle->derive_port) {
    wire::store16(frame.data + handle->path.header_bytes() - kUdpHeader, wire::source_port(0, qp.common.qpn, dest));
  }
  const std::uint32_t qkey = (wqe.ud.remote_qkey & kOwnQkey) != 0 ? qp.qkey : wqe.ud.remote_qkey;
  wire::Deth{qkey, qp.common.qpn}.emit(builder.extended());
  if (immediate) wire::ImmDt{wqe.imm_data}.emit(builder.extended() + wire::Deth::kBytes);
  builder.seal();
  if (!add_payload(context, qp, wqe, {.bytes = wqe.length, .first = true, .last = true}, builder)) {
    return UROCE_FAIL_SEND_MEMORY;
  }
  builder.finish();
  ++burst.count;
  return 0;
}

/// Sends the next packet of the WQE under the cursor. False: the WQE failed.
bool send_packet(Context& context, Qp& qp, const Wqe& wqe, TxBurst& burst) {
  bool last = true;
  std::uint8_t failure = 0;
  const base::Frame& frame = burst.frames[burst.count];
  if (qp.common.type == QpType::kUd) {
    failure = build_datagram(context, qp, wqe, burst);
  } else if (qp.common.type == QpType::kRawPacket) {
    failure = raw::build(context, qp, wqe, burst, last);
  } else {
    const DataPart part = part_of(qp, wqe);
    last = part.last;
    failure = build_data(context, qp, wqe, part, false, burst);
  }
  if (failure != 0) {
    fail_send(context, qp, failure);
    return false;
  }
  sent(context, qp, wqe, last, frame.length);
  return true;
}

enum class Begun : std::uint8_t { kSend, kDone, kStop };

/// Begins a WQE.
Begun begin(Context& context, Qp& qp, Wqe& wqe) {
  if (qp.common.state != QpState::kRts) return Begun::kStop;
  if (wqe.failure != 0) {
    fail_send(context, qp, wqe.failure);
    return Begun::kStop;
  }
  if (!wqe.has(abi::kLocal)) {
    wqe.first_psn = qp.requester.psn.value();
    qp.requester.send_at = {};  // the WQE before may have failed in the middle of its list
    ++qp.requester.started;
    return Begun::kSend;
  }
  if (!execute_locally(context, qp, wqe)) {
    fail_send(context, qp, UROCE_FAIL_KEY_CHANGE);
    return Begun::kStop;
  }
  ++qp.requester.started;
  ++qp.requester.cursor;
  complete_send(context, qp);
  return Begun::kDone;
}

/// False: nothing more can be sent now.
bool step(Context& context, Qp& qp, TxBurst& burst, std::uint32_t& budget) {
  if (qp.requester.cursor == qp.requester.fetched && !fetch_wqe(context, qp)) {
    qp.common.send_state = SendState::kIdle;
    return false;
  }
  Wqe& wqe = qp.wqe(qp.requester.cursor);
  qp.common.send_state = SendState::kBlocked;
  if (qp.requester.cursor == qp.requester.started) {
    const Begun begun = begin(context, qp, wqe);
    if (begun != Begun::kSend) return begun == Begun::kDone;
  }
  if (budget == 0 || burst.full()) {
    qp.common.send_state = SendState::kReady;
    return false;
  }
  --budget;
  return send_packet(context, qp, wqe, burst);
}

}  // namespace

bool run(Context& context, Qp& qp, TxBurst& burst, std::uint32_t& budget) {
  if (qp.common.state != QpState::kRts && qp.common.state != QpState::kSqd) {
    qp.common.send_state = SendState::kBlocked;
    return false;
  }
  const std::uint32_t head = qp.requester.head;
  while (step(context, qp, burst, budget)) {
  }
  qp.requester.una = qp.requester.max_psn = qp.requester.ack_requested = qp.requester.psn;
  if (qp.requester.head != head) publish_free(qp);
  if (qp.requester.draining) check_drained(context, qp);
  if (qp.requester.report_sent) check_sent(context, qp);
  return qp.common.send_state == SendState::kReady;
}

}  // namespace uroce::proto::unreliable
