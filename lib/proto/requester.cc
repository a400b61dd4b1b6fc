#include "proto/requester.h"

#include <algorithm>

#include "proto/gather.h"
#include "proto/retry.h"
#include "proto/wqe.h"

namespace uroce::proto::requester {
namespace {

/// kAgain: look at the WQE under the cursor afresh.
enum class Step : std::uint8_t { kSent, kBlocked, kAgain, kFailed };

/// What goes wrong with a WQE before it is sent shows when all before it are complete. If nobody was asked to
/// acknowledge the last of those, they go out once more, and now the last one asks.
Step stop_at(Core& core, Qp& qp, Wqe& wqe, std::uint8_t status) {
  const bool known = wqe.status != UROCE_WC_SUCCESS;
  wqe.status = status;
  if (qp.sq_cursor != qp.sq_head) {
    if (known || qp.ack_asked == qp.psn) return Step::kBlocked;
    rewind(core, qp);
    return Step::kAgain;
  }
  fail_send(core, qp, status);
  return Step::kFailed;
}

/// Executed once, when all before it are complete: what they use stays valid for their retries, and a retry can't
/// repeat it.
Step invalidate_locally(Core& core, Qp& qp, Wqe& wqe) {
  if (qp.sq_cursor != qp.sq_head) return Step::kBlocked;
  if (core.memory.invalidate(Key{wqe.imm_data}, qp.pd, qp.qpn) != memory::Verdict::kOk) {
    return stop_at(core, qp, wqe, UROCE_WC_MW_BIND_ERR);
  }
  ++qp.sq_cursor;
  ++qp.sq_started;
  complete_send(core, qp);
  qp.sq.publish_consumed(qp.sq_head);
  return Step::kAgain;
}

/// First touch of a WQE: kSent means that its packets may go now.
Step begin(Core& core, Qp& qp, Wqe& wqe) {
  if (qp.state != QpState::kRts) return Step::kBlocked;
  if (wqe.status != UROCE_WC_SUCCESS) return stop_at(core, qp, wqe, wqe.status);
  if ((wqe.flags & UROCE_SEND_FENCE) != 0 && qp.reads_in_flight != 0) return Step::kBlocked;
  if (wqe.kind == Kind::kLocalInvalidate) return invalidate_locally(core, qp, wqe);
  wqe.first_psn = qp.psn.value();
  ++qp.sq_started;
  qp.send_at = {};
  return Step::kSent;
}

/// Whether nothing follows the current WQE, whose last packet costs `cost`, right away, so that its acknowledge
/// must be asked for.
bool last_for_now(Core& core, Qp& qp, std::uint32_t cost) {
  const std::uint32_t next = qp.sq_cursor + 1;
  if (next == qp.sq_fetched && !fetch_wqe(core, qp)) return true;
  const Wqe& wqe = qp.wqe(next);
  if (wqe.status != UROCE_WC_SUCCESS || qp.state != QpState::kRts) return true;
  if ((wqe.flags & UROCE_SEND_FENCE) != 0 && qp.reads_in_flight != 0) return true;
  switch (wqe.kind) {
    case Kind::kLocalInvalidate: return true;
    case Kind::kRead:
    case Kind::kAtomic: {
      const std::uint32_t packets = std::min(wqe.psn_count, qp.read_chunk);
      const std::uint32_t answer = cost_of(std::min(wqe.length, packets << qp.mtu_shift), packets);
      return qp.reads_in_flight >= qp.max_reads || qp.in_flight() + cost + answer > qp.window.bytes();
    }
    default: return false;
  }
}

/// Whether `cost` more bytes fit. When the window is full and nobody was asked for an acknowledge (it may have
/// shrunk since), one packet goes over it to ask.
bool window_lets(Qp& qp, std::uint32_t cost, bool& probe) {
  const std::uint32_t in_flight = qp.in_flight();
  if (in_flight == 0 || in_flight + cost <= qp.window.bytes()) return true;
  probe = !qp.ack_asked.after(qp.una);
  return probe;
}

/// Books a packet, or a READ request with `packets` of answer.
void sent(Core& core, Qp& qp, std::uint32_t packets, std::uint32_t cost, std::uint32_t frame_bytes) {
  if (qp.psn.before(qp.max_psn)) {
    ++core.counters.retransmitted_pkts;
    ++qp.counters.retransmitted_pkts;
  }
  qp.psn = qp.psn + packets;
  if (qp.psn.after(qp.max_psn)) qp.max_psn = qp.psn;
  qp.cost_sent += cost;
  ++core.counters.sent_pkts;
  core.counters.sent_bytes += frame_bytes;
  ++qp.counters.sent_pkts;
  if (qp.ack_deadline == kNever && qp.ack_timeout != 0) {
    qp.ack_deadline = core.now + qp.ack_timeout;
    core.want_timer(qp, qp.ack_deadline);
  }
}

void next_wqe(Qp& qp) {
  ++qp.sq_cursor;
  qp.send_at = {};
}

/// Whether a packet of this cost is to ask for an acknowledge whatever it carries: each quarter of the window, and
/// where the window ends. The last packet of a turn asks too, so that whatever happens before the next (a drain, an
/// error) finds all asked for.
bool at_limit(const Qp& qp, std::uint32_t cost) {
  return qp.cost_since_ack_req >= qp.window.bytes() / 4 ||
         qp.in_flight() + cost + qp.full_packet_cost() > qp.window.bytes();
}

/// The extended headers of a SEND or WRITE: RETH first, immediate or key last.
void emit_extended(std::byte* at, const Wqe& wqe, bool reth, SendRow::Extra extra) {
  if (reth) {
    wire::Reth{wqe.remote_addr, Key{wqe.rkey}, wqe.length}.emit(at);
    at += wire::Reth::kBytes;
  }
  if (extra == SendRow::Extra::kImmediate) wire::ImmDt{wqe.imm_data}.emit(at);
  if (extra == SendRow::Extra::kInvalidate) wire::Ieth{Key{wqe.imm_data}}.emit(at);
}

wire::Operation operation_of(const SendRow& row, bool first, bool last) {
  if (first) return last ? row.only : row.first;
  return last ? row.last : row.middle;
}

/// One packet of a SEND or WRITE.
Step send_data(Core& core, Qp& qp, Wqe& wqe, TxBurst& burst, std::uint32_t budget) {
  const SendRow& row = send_row(wqe.opcode);
  const std::uint32_t index = psns_between(wqe.first(), qp.psn);
  const std::uint32_t offset = index << qp.mtu_shift;
  const std::uint32_t left = wqe.length - offset;
  const bool first = index == 0;
  const bool last = left <= qp.mtu;
  const std::uint32_t bytes = last ? left : qp.mtu;
  const std::uint32_t cost = cost_of(bytes, 1);
  bool ask = false;
  if (!window_lets(qp, cost, ask)) return Step::kBlocked;

  const bool reth = first && wqe.kind == Kind::kWrite;
  const bool extra = last && row.extra != SendRow::Extra::kNone;
  qp.cost_since_ack_req += cost;
  ask = ask || at_limit(qp, cost) || budget == 1 || burst.count + 1 == burst.frames.size();
  if (last) ask = ask || qp.signal_all || (wqe.flags & UROCE_SEND_SIGNALED) != 0 || last_for_now(core, qp, cost);

  const wire::Bth bth{
      .opcode = wire::opcode(wire::Service::kRc, operation_of(row, first, last)),
      .solicited = last && (wqe.flags & UROCE_SEND_SOLICITED) != 0,
      .pkey = qp.pkey,
      .dest_qpn = qp.dest_qpn,
      .ack_req = ask,
      .psn = qp.psn,
  };
  base::Frame& frame = burst.frames[burst.count];
  PacketBuilder builder(core.crc, core.config.offload_ip_checksum);
  const std::size_t extended = (reth ? wire::Reth::kBytes : 0) + (extra ? wire::ImmDt::kBytes : 0);
  if (builder.start(frame, qp.path, bth, extended, bytes)) {
    emit_extended(builder.extended(), wqe, reth, extra ? row.extra : SendRow::Extra::kNone);
    builder.seal();
    if (wqe.is_inline()) {
      builder.payload(wqe.inline_data() + offset, bytes);
    } else if (!gather(core, qp.pd, wqe.sges(), wqe.num_sge, qp.send_at, bytes, builder)) {
      return stop_at(core, qp, wqe, UROCE_WC_LOC_PROT_ERR);
    }
    builder.finish();
    ++burst.count;
  }
  sent(core, qp, 1, cost, frame.length);
  if (ask) {
    qp.ack_asked = qp.psn;
    qp.cost_since_ack_req = 0;
  }
  if (last) next_wqe(qp);
  return Step::kSent;
}

/// Sends a request that is answered by a response of its own; `packets` PSNs, `cost` bytes of window.
Step send_request(Core& core, Qp& qp, TxBurst& burst, std::uint8_t opcode, const auto& header,
                  std::uint32_t packets, std::uint32_t cost) {
  const wire::Bth bth{.opcode = opcode, .pkey = qp.pkey, .dest_qpn = qp.dest_qpn, .psn = qp.psn};
  base::Frame& frame = burst.frames[burst.count];
  PacketBuilder builder(core.crc, core.config.offload_ip_checksum);
  if (builder.start(frame, qp.path, bth, header.kBytes, 0)) {
    header.emit(builder.extended());
    builder.seal();
    builder.finish();
    ++burst.count;
  }
  ++qp.reads_in_flight;
  sent(core, qp, packets, cost, frame.length);
  qp.ack_asked = qp.psn;  // its answer acknowledges all before it
  qp.cost_since_ack_req = 0;
  return Step::kSent;
}

/// One request of a READ: at most kReadChunkPackets of answer, so that a long READ comes in at our pace.
Step send_read(Core& core, Qp& qp, Wqe& wqe, TxBurst& burst) {
  if (qp.reads_in_flight >= qp.max_reads) return Step::kBlocked;
  const std::uint32_t index = psns_between(wqe.first(), qp.psn);
  const std::uint32_t end = std::min((index | (qp.read_chunk - 1)) + 1, wqe.psn_count);
  const std::uint32_t offset = index << qp.mtu_shift;
  const std::uint32_t bytes = (end == wqe.psn_count ? wqe.length : end << qp.mtu_shift) - offset;
  const std::uint32_t cost = cost_of(bytes, end - index);
  bool probe = false;
  if (!window_lets(qp, cost, probe)) return Step::kBlocked;
  if (index == 0 && !writable(core, qp.pd, wqe.sges(), wqe.num_sge)) {
    return stop_at(core, qp, wqe, UROCE_WC_LOC_PROT_ERR);
  }
  if (!core.take_read_budget(qp, cost)) return Step::kBlocked;
  const wire::Reth header{wqe.remote_addr + offset, Key{wqe.rkey}, bytes};
  send_request(core, qp, burst, wire::opcode(wire::Service::kRc, wire::Operation::kReadRequest), header,
               end - index, cost);
  if (end == wqe.psn_count) next_wqe(qp);
  return Step::kSent;
}

Step send_atomic(Core& core, Qp& qp, Wqe& wqe, TxBurst& burst) {
  const std::uint32_t cost = cost_of(wqe.length, 1);
  if (qp.reads_in_flight >= qp.max_reads) return Step::kBlocked;
  bool probe = false;
  if (!window_lets(qp, cost, probe)) return Step::kBlocked;
  if (!writable(core, qp.pd, wqe.sges(), wqe.num_sge)) return stop_at(core, qp, wqe, UROCE_WC_LOC_PROT_ERR);
  if (!core.take_read_budget(qp, cost)) return Step::kBlocked;
  const bool swap = wqe.opcode == UROCE_WR_ATOMIC_CMP_AND_SWP;
  const wire::AtomicEth header{wqe.remote_addr, Key{wqe.rkey}, swap ? wqe.atomic.swap : wqe.atomic.compare_add,
                               swap ? wqe.atomic.compare_add : 0};
  send_request(core, qp, burst, wire::opcode(wire::Service::kRc, send_row(wqe.opcode).only), header, 1, cost);
  next_wqe(qp);
  return Step::kSent;
}

Step send_packet(Core& core, Qp& qp, Wqe& wqe, TxBurst& burst, std::uint32_t budget) {
  // A WQE that failed halfway stays where it is until it is the oldest.
  if (wqe.status != UROCE_WC_SUCCESS) return stop_at(core, qp, wqe, wqe.status);
  switch (wqe.kind) {
    case Kind::kRead: return send_read(core, qp, wqe, burst);
    case Kind::kAtomic: return send_atomic(core, qp, wqe, burst);
    default: return send_data(core, qp, wqe, burst, budget);
  }
}

}  // namespace

bool run(Core& core, Qp& qp, TxBurst& burst, std::uint32_t& budget) {
  if ((qp.state != QpState::kRts && qp.state != QpState::kSqd) || qp.rnr_waiting) {
    qp.send_state = SendState::kBlocked;
    return false;
  }
  for (;;) {
    if (qp.sq_cursor == qp.sq_fetched && !fetch_wqe(core, qp)) {
      qp.send_state = SendState::kIdle;
      return false;
    }
    Wqe& wqe = qp.wqe(qp.sq_cursor);
    Step step = Step::kSent;
    if (qp.sq_cursor == qp.sq_started) step = begin(core, qp, wqe);
    if (step == Step::kSent) {
      if (budget == 0 || burst.full()) {
        qp.send_state = SendState::kReady;
        return true;
      }
      step = send_packet(core, qp, wqe, burst, budget);
    }
    if (step == Step::kAgain) continue;
    if (step != Step::kSent) {
      qp.send_state = SendState::kBlocked;
      return false;
    }
    --budget;
  }
}

void rewind(Core& core, Qp& qp) {
  qp.reads_in_flight = 0;
  if (qp.read_budget_used != 0) core.give_read_budget(qp, qp.read_budget_used);
  qp.ack_deadline = kNever;
  skip_to_una(qp);
}

void skip_to_una(Qp& qp) {
  qp.sq_cursor = qp.sq_head;
  qp.psn = qp.una;
  qp.cost_sent = qp.cost_acked;
  qp.ack_asked = qp.una;
  qp.cost_since_ack_req = 0;
  qp.send_at = {};
  if (qp.sq_head == qp.sq_started) return;
  const Wqe& wqe = qp.wqe(qp.sq_head);
  const bool data = wqe.kind == Kind::kSend || wqe.kind == Kind::kWrite;
  if (data && !wqe.is_inline()) {
    qp.send_at = locate(wqe.sges(), wqe.num_sge, psns_between(wqe.first(), qp.una) << qp.mtu_shift);
  }
}

}  // namespace uroce::proto::requester
