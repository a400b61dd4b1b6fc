#include "proto/modify.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "proto/rc/ack_timeout.h"
#include "proto/rc/recovery.h"
#include "proto/rc/responder.h"
#include "proto/work/held_completions.h"
#include "proto/work/rate_limit.h"
#include "proto/work/teardown.h"
#include "wire/frame_template.h"

namespace uroce::proto {
namespace {

/// Keeps the attributes as given, for ibv_query_qp(3).
void remember(QpAttr& kept, const QpAttr& attr, std::uint32_t mask) {
  if (mask & kAttrAccessFlags) kept.access = attr.access;
  if (mask & kAttrPkeyIndex) kept.pkey_index = attr.pkey_index;
  if (mask & kAttrPort) kept.port = attr.port;
  if (mask & kAttrQkey) kept.qkey = attr.qkey;
  if (mask & kAttrAv) kept.path = attr.path;
  if (mask & kAttrPathMtu) kept.path_mtu = attr.path_mtu;
  if (mask & kAttrTimeout) kept.timeout = attr.timeout;
  if (mask & kAttrRetryCnt) kept.retry_cnt = attr.retry_cnt;
  if (mask & kAttrRnrRetry) kept.rnr_retry = attr.rnr_retry;
  if (mask & kAttrRqPsn) kept.rq_psn = attr.rq_psn;
  if (mask & kAttrSqPsn) kept.sq_psn = attr.sq_psn;
  if (mask & kAttrMaxRdAtomic) kept.max_rd_atomic = attr.max_rd_atomic;
  if (mask & kAttrMaxDestRdAtomic) kept.max_dest_rd_atomic = attr.max_dest_rd_atomic;
  if (mask & kAttrMinRnrTimer) kept.min_rnr_timer = attr.min_rnr_timer;
  if (mask & kAttrDestQpn) kept.dest_qpn = attr.dest_qpn;
  if (mask & kAttrRateLimit) kept.rate_kbps = attr.rate_kbps, kept.rate_burst = attr.rate_burst;
}

void set_path(const Context& context, Qp& qp, const QpAttr& kept) {
  wire::PathAddress path = kept.path;
  path.ecn = context.config.ecn && qp.common.type != QpType::kUd ? wire::kEct0 : wire::kNotEct;
  path.source_port = wire::source_port(path.flow_label, qp.common.qpn, qp.common.dest_qpn);
  qp.path = wire::FrameTemplate(path);
  qp.header_crc = {};
  // Packets to an address of this process never pass a wire, so their sender is known.
  const bool own = path.dest_mac == path.source_mac && path.dest_mac != wire::Mac{};
  const std::uint32_t device = own ? context.device : context.local->device_at(path.dest_mac);
  qp.common.peer_sender = device != 0 ? LocalDevices::sender(device, qp.common.dest_qpn) : 0;
  std::memcpy(qp.path_v6, path.dest.bytes.data(), 16);
  std::memcpy(qp.path_v6 + 16, path.source.bytes.data(), 16);
  // No packet comes from 0.0.0.0: an IPv6 path matches none of IPv4.
  std::fill_n(qp.common.path_v4, 2, 0);
  if (!path.dest.is_v4()) return;
  std::memcpy(&qp.common.path_v4[0], qp.path_v6 + 12, 4);
  std::memcpy(&qp.common.path_v4[1], qp.path_v6 + 28, 4);
}

void apply(Context& context, Qp& qp, const QpAttr& kept, std::uint32_t mask) {
  if (mask & kAttrAccessFlags) qp.responder.access = static_cast<std::uint16_t>(kept.access);
  if (mask & kAttrPathMtu) {
    qp.common.mtu_shift = static_cast<std::uint8_t>(std::countr_zero(kept.path_mtu));
    qp.congestion.reset(context.config.start_window, qp.full_packet_cost());
    // The response to one request never exceeds the receive ring.
    const std::uint32_t ring_packets = std::max(1u, context.config.receive_ring_bytes / qp.full_packet_cost());
    qp.reads.largest_chunk =
        static_cast<std::uint8_t>(std::min<std::uint32_t>(kReadChunkPackets, std::bit_floor(ring_packets)));
  }
  if (mask & kAttrQkey) qp.qkey = kept.qkey;
  if (mask & kAttrTimeout) {
    qp.retransmission.ack_timeout = kept.timeout & 31;
    qp.retransmission.early_retries = 0;
    // The timer of what is unacknowledged starts anew, even if there was none before.
    qp.deadline(Deadline::kAck) = kNever;
    if (qp.requester.una != qp.requester.psn) expect_acknowledge(context, qp);
  }
  if (mask & kAttrRetryCnt) qp.requester.retry_cnt = qp.retransmission.retries_left = kept.retry_cnt;
  if (mask & kAttrRnrRetry) qp.requester.rnr_retry = qp.retransmission.rnr_retries_left = kept.rnr_retry;
  if (mask & kAttrRqPsn) qp.responder.epsn = kept.rq_psn;
  if (mask & kAttrSqPsn)
    qp.requester.psn = qp.requester.una = qp.requester.max_psn = qp.requester.ack_requested = kept.sq_psn;
  if (mask & kAttrMaxRdAtomic) qp.requester.max_reads = std::min(kept.max_rd_atomic, kMaxRdAtomic);
  if (mask & kAttrMaxDestRdAtomic) responder::resize_answers(qp, kept.max_dest_rd_atomic);
  if (mask & kAttrMinRnrTimer) qp.answers.min_rnr_timer = kept.min_rnr_timer & 31;
  if (mask & kAttrDestQpn) qp.common.dest_qpn = kept.dest_qpn;
  if (mask & (kAttrAv | kAttrDestQpn)) set_path(context, qp, kept);
  if (mask & kAttrRateLimit) {
    rate_limit::set_rate(context, qp, kept.rate_kbps, kept.rate_burst);
    context.resume_send(qp);
  }
}

/// SQD (IBTA vol. 1, 10.3.1): WQEs that were begun are finished, and no other is begun. If the last packets carried
/// no acknowledge request, they are sent again with one.
void start_drain(Context& context, Qp& qp, bool notify) {
  qp.common.state = QpState::kSqd;
  qp.requester.draining = true;
  qp.requester.drain_notify = notify;
  if (qp.requester.ack_requested != qp.requester.psn && qp.requester.cursor == qp.requester.started &&
      qp.retransmission.recovering != Recovering::kWaiting)
    rewind(context, qp);
  if (qp.requester.ring.count() != 0) context.schedule_send(qp);
  check_drained(context, qp);
}

void change_state(Context& context, Qp& qp, QpState to, const QpAttr& attr, std::uint32_t mask) {
  switch (to) {
    case QpState::kReset: return reset(context, qp);
    case QpState::kErr:
      enter_error(context, qp);
      qp.answers_life = qp.life;
      return;
    case QpState::kSqd:
      if (qp.common.state != QpState::kSqd)
        start_drain(context, qp, (mask & kAttrSqdNotify) != 0 && attr.sqd_notify);
      return;
    case QpState::kRts:
      qp.common.state = to;
      qp.requester.draining = false;
      if (qp.requester.ring.count() != 0) context.schedule_send(qp);
      return;
    default: qp.common.state = to;
  }
}

}  // namespace

void set_datagram_mtu(Qp& qp) {
  if (qp.common.type != QpType::kUd && qp.common.type != QpType::kRawPacket) return;
  qp.common.mtu_shift = 12;
}

void reset(Context& context, Qp& qp) {
  detach(context, qp);
  report_flushed(context, qp);
  forget_held(context, qp);
  const Qp old = qp;
  qp = Qp{};
  qp.common.type = old.common.type;
  qp.common.service = old.common.service;
  qp.common.self = old.common.self;
  qp.common.qpn = old.common.qpn;
  qp.common.pd = old.common.pd;
  qp.counters = old.counters;
  qp.responder.counted = old.responder.counted;
  qp.requester.reports = static_cast<std::uint8_t>(old.requester.reports & ~kTimedReports);
  qp.requester.ring = old.requester.ring;
  qp.requester.shadow = old.requester.shadow;
  qp.requester.cq = old.requester.cq;
  qp.receives = old.receives;
  qp.receives.at = {};
  qp.receives.ran_out = false;
  qp.answers.ring = old.answers.ring;
  qp.answers.limit = old.answers.limit;
  qp.settings = old.settings;
  set_datagram_mtu(qp);
  if (qp.requester.ring.count() != 0) qp.requester.ring.reset();
  if (qp.receives.ring.count() != 0) qp.receives.ring.reset();
  context.cold[qp.common.self] = QpCold{};
}

ModifyVerdict modify(Context& context, Qp& qp, const QpAttr& attr, std::uint32_t mask) {
  const ModifyVerdict verdict = check_modify(qp.common.type, qp.common.state, attr, mask);
  if (verdict.error != 0) return verdict;
  if ((mask & kAttrMaxDestRdAtomic) != 0 && attr.max_dest_rd_atomic > qp.answers.limit) {
    return {EINVAL, "max_dest_rd_atomic", "is larger than the QP's number of responder resources"};
  }
  if ((mask & kAttrMaxDestRdAtomic) != 0 && attr.max_dest_rd_atomic < responder::answers_needed(qp)) {
    return {EBUSY, "max_dest_rd_atomic", "is smaller than the number of READs and atomics under way"};
  }
  const QpState to = (mask & kAttrState) != 0 ? attr.state : qp.common.state;
  if (to != QpState::kReset) {
    QpAttr& kept = context.cold[qp.common.self].attr;
    remember(kept, attr, mask);
    apply(context, qp, kept, mask);
  }
  if ((mask & kAttrState) != 0) change_state(context, qp, to, attr, mask);
  return {};
}

}  // namespace uroce::proto
