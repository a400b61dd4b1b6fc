#include "proto/rc/requester.h"

#include <algorithm>
#include <bit>

#include "base/probe.h"
#include "proto/rc/ack_timeout.h"
#include "proto/rc/recovery.h"
#include "proto/work/by_reference.h"
#include "proto/work/data_packet.h"
#include "proto/work/held_completions.h"
#include "proto/work/local_work.h"
#include "proto/work/send_completion.h"
#include "wire/extended_headers.h"

namespace uroce::proto::requester {
namespace {

/// kRestart: examine the WQE under the cursor again.
enum class Step : std::uint8_t { kSent, kBlocked, kRestart, kFailed };

/// A WQE that fails before it is sent completes with its error after all earlier WQEs have completed (IBTA vol. 1,
/// 9.9.2). If the last packets before it carried no acknowledge request, they are sent again, the last one with a
/// request.
Step defer_failure(Context& context, Qp& qp, Wqe& wqe, std::uint8_t failure) {
  const bool known = wqe.failure != 0;
  wqe.failure = failure;
  if (qp.requester.cursor != qp.requester.head) {
    if (known || qp.requester.ack_requested == qp.requester.psn) return Step::kBlocked;
    rewind(context, qp);
    return Step::kRestart;
  }
  fail_send(context, qp, failure);
  return Step::kFailed;
}

/// Executed once, after all earlier WQEs have completed: their keys stay valid for their retries, and a retry
/// cannot execute it twice.
Step change_key(Context& context, Qp& qp, Wqe& wqe) {
  if (qp.requester.cursor != qp.requester.head) return Step::kBlocked;
  if (!execute_locally(context, qp, wqe)) return defer_failure(context, qp, wqe, UROCE_FAIL_KEY_CHANGE);
  ++qp.requester.cursor;
  ++qp.requester.started;
  complete_send(context, qp);
  publish_free(qp);
  return Step::kRestart;
}

/// Whether the message has to wait for a receive at the peer. Without credits a single one may be sent, whose
/// acknowledge brings new ones (IBTA vol. 1, 9.7.7.2).
bool lacks_credit(const Qp& qp, const Wqe& wqe, std::uint32_t index) {
  return qp.requester.limited && index != qp.requester.head && completes_receive(wqe) &&
         static_cast<std::int32_t>(index - qp.requester.credit_limit) >= 0;
}

/// A READ begins. The range shrinks when none is in flight.
void extend_read_range(Qp& qp, const Wqe& read) {
  if (read.length == 0) return;
  const std::uint64_t first = read.remote_addr, last = first + (read.length - 1);
  ReadRange& range = qp.read_range;
  const bool alone = qp.requester.reads_in_flight == 0;
  range.first = alone ? first : std::min(range.first, first);
  range.last = alone ? last : std::max(range.last, last);
  range.newest = qp.requester.cursor;
}

bool changes_peer_memory(const Wqe& wqe) {
  return wqe.kind == Kind::kWrite || wqe.kind == Kind::kAtomic || wqe.kind == Kind::kAtomicWrite;
}

/// Of the same region. Neither is empty.
bool overlap(const Wqe& a, const Wqe& b) {
  return a.rkey == b.rkey && (b.remote_addr - a.remote_addr < a.length || a.remote_addr - b.remote_addr < b.length);
}

/// Whether a READ before this WQE, which changes the peer's memory, may still read what it changes. It looks at
/// few entries, so that no client keeps the worker here, and says yes if there are more.
[[gnu::noinline]] bool changes_what_is_read(const Qp& qp, const Wqe& wqe) {
  constexpr std::uint32_t kMostLooks = 128;
  const ReadRange& range = qp.read_range;
  if (wqe.length == 0 || wqe.remote_addr > range.last || wqe.remote_addr + (wqe.length - 1) < range.first)
    return false;
  std::uint32_t looks = 0;
  for (std::uint32_t at = range.newest; static_cast<std::int32_t>(at - qp.requester.head) >= 0; --at) {
    if (++looks > kMostLooks) return true;
    if (const Wqe& before = qp.wqe(at); before.kind == Kind::kRead && before.length != 0 && overlap(before, wqe))
      return true;
  }
  return false;
}

/// Whether the WQE at `index` waits for the answers to earlier READs and atomics: if it has a fence, or if it
/// changes what an earlier READ reads. IBTA vol. 1, 10.8.3.3, leaves that order to the fence. Linux rxe keeps it,
/// and programs without a fence rely on it; our responder reads memory when it answers, which may be after the next
/// request. Not ordered without a fence: a SEND, and another key of the same memory. What was begun does not wait.
[[gnu::always_inline]] inline bool waits_for_answers(const Qp& qp, const Wqe& wqe, std::uint32_t index) {
  return qp.requester.reads_in_flight != 0 && index == qp.requester.started &&
         ((wqe.flags & UROCE_SEND_FENCE) != 0 || (changes_peer_memory(wqe) && changes_what_is_read(qp, wqe)));
}

/// Begins a WQE: kSent means that its packets may be sent now.
Step begin(Context& context, Qp& qp, Wqe& wqe) {
  if (qp.common.state != QpState::kRts) return Step::kBlocked;
  if (wqe.failure != 0) return defer_failure(context, qp, wqe, wqe.failure);
  if (waits_for_answers(qp, wqe, qp.requester.cursor)) return Step::kBlocked;
  if (!wqe.is_message()) {
    if (wqe.has(abi::kLocal)) return change_key(context, qp, wqe);
    // Here and not when it is fetched: the attribute may change while the WQE waits.
    if (qp.requester.max_reads == 0) {
      ++context.counters.bad_wqe_opcode;
      return defer_failure(context, qp, wqe, UROCE_FAIL_NO_READS);
    }
    if (wqe.kind == Kind::kRead) extend_read_range(qp, wqe);
  } else if (lacks_credit(qp, wqe, qp.requester.cursor)) {
    return Step::kBlocked;
  }
  wqe.first_psn = qp.requester.psn.value();
  ++qp.requester.started;
  qp.requester.send_at = {};
  return Step::kSent;
}

/// The length of the next READ request, in packets of response: a part of the window, so that several requests
/// share it, unless max_rd_atomic permits fewer.
std::uint32_t wanted_chunk(const Qp& qp) {
  const std::uint32_t requests = std::clamp<std::uint32_t>(qp.requester.max_reads, 1, 4);
  const std::uint32_t packets = qp.congestion.window() / (requests * qp.full_packet_cost());
  return std::min<std::uint32_t>(qp.reads.largest_chunk, std::bit_floor(std::max(packets, 1u)));
}

/// Before a request that was never sent. The length changes once all requests of the last change are answered.
void choose_chunk(Qp& qp) {
  ReadPacing& reads = qp.reads;
  if (qp.requester.reads_in_flight != 0 && qp.requester.una.before(reads.chunk_since)) return;
  reads.chunk_before = reads.chunk;
  reads.chunk = static_cast<std::uint8_t>(wanted_chunk(qp));
  reads.chunk_since = qp.requester.psn;
}

/// Whether no packet follows immediately after the current WQE, whose last packet costs `cost`, so that this packet
/// must request the acknowledge.
[[gnu::always_inline]] inline bool last_for_now(Context& context, Qp& qp, std::uint32_t cost) {
  const std::uint32_t next = qp.requester.cursor + 1;
  if (next == qp.requester.fetched && !fetch_wqe(context, qp)) return true;
  const Wqe& wqe = qp.wqe(next);
  if (wqe.failure != 0 || qp.common.state != QpState::kRts) return true;
  if (waits_for_answers(qp, wqe, next)) return true;
  if (wqe.is_message()) return lacks_credit(qp, wqe, next);
  if (wqe.has(abi::kLocal)) return true;
  const std::uint32_t packets =
      std::min(wqe.psn_count, std::max(qp.reads.chunk_at(qp.requester.psn + 1), wanted_chunk(qp)));
  const std::uint32_t answer = cost_of(std::min(wqe.window_bytes(), packets << qp.common.mtu_shift), packets);
  return qp.requester.reads_in_flight >= qp.requester.max_reads ||
         qp.congestion.in_flight() + cost + answer > qp.congestion.window();
}

/// Whether `cost` more bytes fit into the window. When it is full and no acknowledge was requested (it may have
/// shrunk since), one packet exceeds it to request one.
bool fits_window(Qp& qp, std::uint32_t cost, bool& probe) {
  const std::uint32_t in_flight = qp.congestion.in_flight();
  if (in_flight == 0 || in_flight + cost <= qp.congestion.window()) return true;
  probe = !qp.requester.ack_requested.after(qp.requester.una);
  return probe;
}

/// Accounts for a packet, or for a READ request with `packets` of response. True: it is sent for the first time. A
/// READ takes as many PSNs as its response has packets (IBTA vol. 1, 9.7.3).
[[gnu::always_inline]] inline bool sent(Context& context, Qp& qp, const Wqe& wqe, std::uint32_t packets,
                                        std::uint32_t cost, const base::WireCost& on_wire) {
  UROCE_PROBE(transmit, qp.common.qpn.value, wqe.opcode, qp.requester.psn.value(), on_wire.bytes);
  const bool again = qp.requester.psn.before(qp.requester.max_psn);
  if (again) {
    ++context.counters.retransmitted_pkts;
    ++qp.counters.retransmitted_pkts;
  }
  qp.requester.psn = qp.requester.psn + packets;
  if (qp.requester.psn.after(qp.requester.max_psn)) qp.requester.max_psn = qp.requester.psn;
  qp.congestion.on_sent(cost);
  context.counters.sent_pkts += on_wire.packets;
  context.counters.sent_bytes += on_wire.bytes;
  qp.counters.sent_pkts += on_wire.packets;
  if (qp.deadline(Deadline::kAck) == kNever) expect_acknowledge(context, qp);
  return !again;
}

/// The packet that was sent last requests an acknowledge, or is answered with a response.
void record_ack_request(const Context& context, Qp& qp, Psn psn, bool first_time) {
  if (first_time) qp.retransmission.rtt.sent(psn, context.now);
  qp.requester.ack_requested = qp.requester.psn;
  qp.retransmission.cost_since_ack_request = 0;
}

void next_wqe(Qp& qp) {
  ++qp.requester.cursor;
  qp.requester.send_at = {};
}

/// Whether a packet of this cost requests an acknowledge whatever it carries: once each quarter of the window, and
/// at its end. The last packet of a turn does so too, so that after a drain or an error all packets are covered by
/// a request.
bool at_limit(const Qp& qp, std::uint32_t cost) {
  return qp.retransmission.cost_since_ack_request >= qp.congestion.window() / 4 ||
         qp.congestion.in_flight() + cost + qp.full_packet_cost() > qp.congestion.window();
}

/// As build_data(), with the payload named.
std::uint8_t build_reference(Context& context, Qp& qp, const Wqe& wqe, const DataPart& part, bool ask,
                             TxBurst& burst, const base::PayloadReference& reference) {
  base::Frame& frame = burst.frames[burst.count];
  PacketBuilder builder(context.crc, context.config.offload_ip_checksum);
  if (!start_data(builder, frame, qp, wqe, part, ask, sizeof reference)) return UROCE_FAIL_PORT_MTU;
  builder.refer(frame, reference);
  SgeCursor& at = qp.requester.send_at;
  at.offset += part.bytes;
  if (at.offset == wqe.sges()[at.index].length) at = {at.index + 1, 0};
  ++burst.count;
  burst.use_up(part.packets - 1);
  ++context.counters.sent_by_reference;
  return 0;
}

/// Sends the part, whose payload `reference` names unless it is nullptr. `budget` includes all packets that it
/// takes.
[[gnu::always_inline]] inline Step send_part(Context& context, Qp& qp, Wqe& wqe, TxBurst& burst,
                                             std::uint32_t budget, const DataPart& part,
                                             const base::PayloadReference* reference) {
  const std::uint32_t packets = reference != nullptr ? part.packets : 1;
  const std::uint32_t cost = cost_of(part.bytes, packets);
  bool ask = false;
  if (!fits_window(qp, cost, ask)) return Step::kBlocked;

  qp.retransmission.cost_since_ack_request += cost;
  ask = ask || at_limit(qp, cost) || budget == packets || burst.count + packets >= burst.frames.size();
  if (part.last) {
    ask = ask || (qp.requester.reports & kAllReports) != 0 || (wqe.flags & UROCE_SEND_SIGNALED) != 0 ||
          last_for_now(context, qp, cost);
  }
  const base::Frame& frame = burst.frames[burst.count];
  const std::uint8_t failure = reference != nullptr
                                   ? build_reference(context, qp, wqe, part, ask, burst, *reference)
                                   : build_data(context, qp, wqe, part, ask, burst);
  if (failure != 0) [[unlikely]]
    return defer_failure(context, qp, wqe, failure);
  const base::WireCost on_wire = reference != nullptr ? base::wire_cost(frame) : base::WireCost{1, frame.length};
  const bool first_time = sent(context, qp, wqe, packets, cost, on_wire);
  if (ask) record_ack_request(context, qp, qp.requester.psn - 1, first_time);
  if (part.last) next_wqe(qp);
  return Step::kSent;
}

/// As send_data(), by reference if that is possible.
[[gnu::noinline]] Step send_named(Context& context, Qp& qp, Wqe& wqe, TxBurst& burst, std::uint32_t& budget) {
  DataPart part = part_of(qp, wqe);
  const std::optional<base::PayloadReference> reference = refer(context, qp, wqe, budget, part);
  const Step step = send_part(context, qp, wqe, burst, budget, part, reference ? &*reference : nullptr);
  if (step == Step::kSent) budget -= part.packets - 1;
  return step;
}

/// One packet of a SEND or WRITE, or several by reference, which use up `budget` but for the one that the caller
/// takes.
Step send_data(Context& context, Qp& qp, Wqe& wqe, TxBurst& burst, std::uint32_t& budget) {
  if (wqe.length >= kMinReference && may_refer(context, qp)) [[unlikely]]
    return send_named(context, qp, wqe, burst, budget);
  return send_part(context, qp, wqe, burst, budget, part_of(qp, wqe), nullptr);
}

/// Sends a request that is answered with a response; it takes `packets` PSNs, `cost` bytes of window, and carries
/// `payload` bytes of the WQE's memory.
Step send_request(Context& context, Qp& qp, Wqe& wqe, TxBurst& burst, const auto& header, std::uint32_t packets,
                  std::uint32_t cost, std::uint32_t payload = 0) {
  const wire::Bth bth{.opcode = wire::opcode(qp.common.service, send_row(wqe.opcode).only),
                      .pkey = qp.common.pkey,
                      .dest_qpn = qp.common.dest_qpn,
                      .psn = qp.requester.psn};
  base::Frame& frame = burst.frames[burst.count];
  PacketBuilder builder(context.crc, context.config.offload_ip_checksum);
  const std::size_t xrc = xrceth_bytes(qp);
  if (!builder.start(frame, qp.path, bth, xrc + header.kBytes, payload)) [[unlikely]]
    return defer_failure(context, qp, wqe, UROCE_FAIL_PORT_MTU);
  if (xrc != 0) wire::XrcEth{wqe.remote_srqn}.emit(builder.extended());
  header.emit(builder.extended() + xrc);
  builder.seal();
  if (payload != 0 && !add_payload(context, qp, wqe, {.bytes = payload}, builder)) {
    return defer_failure(context, qp, wqe, UROCE_FAIL_SEND_MEMORY);
  }
  builder.finish();
  ++burst.count;
  ++qp.requester.reads_in_flight;
  record_ack_request(context, qp, bth.psn, sent(context, qp, wqe, packets, cost, {1, frame.length}));
  return Step::kSent;
}

/// Whether max_rd_atomic permits no further request. What was begun before max_rd_atomic became 0 is sent to its
/// end, and again after a loss, one request at a time.
bool at_read_limit(const Qp& qp) {
  return qp.requester.reads_in_flight >= qp.requester.max_reads && qp.requester.reads_in_flight != 0;
}

/// Whether one more request of a single PSN, with a response of `cost`, may be sent.
bool may_send_request(Context& context, Qp& qp, std::uint32_t cost) {
  bool probe = false;
  return !at_read_limit(qp) && fits_window(qp, cost, probe) && context.take_read_budget(qp, cost);
}

/// One request of a READ, for a part of its response: the requester sets the pace of a long READ.
Step send_read(Context& context, Qp& qp, Wqe& wqe, TxBurst& burst) {
  if (at_read_limit(qp)) return Step::kBlocked;
  const std::uint32_t index = psns_between(wqe.first(), qp.requester.psn);
  if (qp.requester.psn == qp.requester.max_psn) choose_chunk(qp);
  const std::uint32_t end = std::min((index | (qp.reads.chunk_at(qp.requester.psn) - 1)) + 1, wqe.psn_count);
  const std::uint32_t offset = index << qp.common.mtu_shift;
  const std::uint32_t bytes = (end == wqe.psn_count ? wqe.length : end << qp.common.mtu_shift) - offset;
  const std::uint32_t cost = cost_of(bytes, end - index);
  bool probe = false;
  if (!fits_window(qp, cost, probe)) return Step::kBlocked;
  if (index == 0 && !writable(context, qp.common.pd, wqe.sges(), wqe.num_sge)) {
    return defer_failure(context, qp, wqe, UROCE_FAIL_RESULT_MEMORY);
  }
  if (!context.take_read_budget(qp, cost)) return Step::kBlocked;
  const wire::Reth header{wqe.remote_addr + offset, Key{wqe.rkey}, bytes};
  const Step step = send_request(context, qp, wqe, burst, header, end - index, cost);
  if (step == Step::kSent && end == wqe.psn_count) next_wqe(qp);
  return step;
}

Step send_atomic(Context& context, Qp& qp, Wqe& wqe, TxBurst& burst) {
  const std::uint32_t cost = cost_of(wqe.length, 1);
  if (!writable(context, qp.common.pd, wqe.sges(), wqe.num_sge))
    return defer_failure(context, qp, wqe, UROCE_FAIL_RESULT_MEMORY);
  if (!may_send_request(context, qp, cost)) return Step::kBlocked;
  const bool swap = wqe.opcode == UROCE_WR_ATOMIC_CMP_AND_SWP;
  const wire::AtomicEth header{wqe.remote_addr, Key{wqe.rkey}, swap ? wqe.atomic.swap : wqe.atomic.compare_add,
                               swap ? wqe.atomic.compare_add : 0};
  const Step step = send_request(context, qp, wqe, burst, header, 1, cost);
  if (step == Step::kSent) next_wqe(qp);
  return step;
}

struct FlushHeader {
  static constexpr std::size_t kBytes = wire::Feth::kBytes + wire::Reth::kBytes;
  wire::Feth feth;
  wire::Reth reth;
  void emit(std::byte* to) const {
    feth.emit(to);
    reth.emit(to + wire::Feth::kBytes);
  }
};

/// A FLUSH or ATOMIC WRITE, which is answered with an empty READ response (annex A19).
Step send_confirmed(Context& context, Qp& qp, Wqe& wqe, TxBurst& burst) {
  const std::uint32_t cost = cost_of(0, 1);
  if (!may_send_request(context, qp, cost)) return Step::kBlocked;
  const bool flush = wqe.kind == Kind::kFlush;
  const auto bytes = flush ? static_cast<std::uint32_t>(wqe.flush.length) : wqe.length;
  const wire::Reth reth{wqe.remote_addr, Key{wqe.rkey}, bytes};
  const FlushHeader flush_header{{(wqe.flush.type & 15) | (wqe.flush.level & 3) << 4}, reth};
  const Step step = flush ? send_request(context, qp, wqe, burst, flush_header, 1, cost)
                          : send_request(context, qp, wqe, burst, reth, 1, cost, bytes);
  if (step == Step::kSent) next_wqe(qp);
  return step;
}

Step send_packet(Context& context, Qp& qp, Wqe& wqe, TxBurst& burst, std::uint32_t& budget) {
  // A WQE that failed halfway stays under the cursor until it is the oldest.
  if (wqe.failure != 0) return defer_failure(context, qp, wqe, wqe.failure);
  switch (wqe.kind) {
    case Kind::kRead: return send_read(context, qp, wqe, burst);
    case Kind::kAtomic: return send_atomic(context, qp, wqe, burst);
    case Kind::kAtomicWrite:
    case Kind::kFlush: return send_confirmed(context, qp, wqe, burst);
    default: return send_data(context, qp, wqe, burst, budget);
  }
}

}  // namespace

bool run(Context& context, Qp& qp, TxBurst& burst, std::uint32_t& budget) {
  if ((qp.common.state != QpState::kRts && qp.common.state != QpState::kSqd) ||
      qp.retransmission.recovering == Recovering::kWaiting) {
    qp.common.send_state = SendState::kBlocked;
    return false;
  }
  for (;;) {
    if (qp.requester.cursor == qp.requester.fetched && !fetch_wqe(context, qp)) {
      qp.common.send_state = SendState::kIdle;
      return false;
    }
    Wqe& wqe = qp.wqe(qp.requester.cursor);
    Step step = Step::kSent;
    if (qp.requester.cursor == qp.requester.started) step = begin(context, qp, wqe);
    if (step == Step::kSent) {
      if (budget == 0 || burst.full()) {
        qp.common.send_state = SendState::kReady;
        return true;
      }
      step = send_packet(context, qp, wqe, burst, budget);
    }
    if (step == Step::kRestart) continue;
    if (step != Step::kSent) {
      qp.common.send_state = SendState::kBlocked;
      return false;
    }
    --budget;
  }
}

}  // namespace uroce::proto::requester
