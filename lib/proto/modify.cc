#include "proto/modify.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "proto/rc/retry.h"
#include "proto/rc/send_position.h"
#include "proto/work/rate_limit.h"
#include "proto/work/teardown.h"

namespace uroce::proto {
namespace {

/// The attributes that are kept as they are, for query.
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

void set_path(Qp& qp, const QpAttr& kept) {
  wire::PathAddress path = kept.path;
  path.source_port = wire::source_port(path.flow_label, qp.qpn, qp.dest_qpn);
  qp.path = wire::FrameTemplate(path);
  qp.header_crc = {};
  std::memcpy(qp.peer, path.dest.bytes.data(), sizeof qp.peer);
  qp.peer_v4 = 0;
  if (path.dest.is_v4()) std::memcpy(&qp.peer_v4, qp.peer + 12, sizeof qp.peer_v4);
}

void apply(Context& context, Qp& qp, const QpAttr& kept, std::uint32_t mask) {
  if (mask & kAttrAccessFlags) qp.access = kept.access;
  if (mask & kAttrPathMtu) {
    qp.mtu = kept.path_mtu;
    qp.mtu_shift = static_cast<std::uint8_t>(std::countr_zero(kept.path_mtu));
    qp.window.reset(qp.full_packet_cost());
    // The answer to one request never exceeds the receive ring.
    const std::uint32_t ring_packets = std::max(1u, context.config.receive_ring_bytes / qp.full_packet_cost());
    qp.read_chunk = std::min(kReadChunkPackets, std::bit_floor(ring_packets));
  }
  if (mask & kAttrQkey) qp.qkey = kept.qkey;
  if (mask & kAttrTimeout) {
    qp.ack_timeout = kept.timeout & 31;
    qp.early_retries = 0;
    if (std::exchange(qp.ack_deadline, kNever) != kNever) expect_acknowledge(context, qp);
  }
  if (mask & kAttrRetryCnt) qp.retry_cnt = qp.retries_left = kept.retry_cnt;
  if (mask & kAttrRnrRetry) qp.rnr_retry = qp.rnr_retries_left = kept.rnr_retry;
  if (mask & kAttrRqPsn) qp.epsn = kept.rq_psn;
  if (mask & kAttrSqPsn) qp.psn = qp.una = qp.max_psn = qp.ack_asked = kept.sq_psn;
  if (mask & kAttrMaxRdAtomic) qp.max_reads = std::min(kept.max_rd_atomic, kMaxRdAtomic);
  if (mask & kAttrMaxDestRdAtomic) {
    qp.resource_count = kept.max_dest_rd_atomic;
    qp.resource_next = qp.resource_used = qp.resource_pending = qp.resource_at = 0;
  }
  if (mask & kAttrMinRnrTimer) qp.min_rnr_timer = kept.min_rnr_timer & 31;
  if (mask & kAttrDestQpn) qp.dest_qpn = kept.dest_qpn;
  if (mask & (kAttrAv | kAttrDestQpn)) set_path(qp, kept);
  if (mask & kAttrRateLimit) {
    rate_limit::set_rate(context, qp, kept.rate_kbps, kept.rate_burst);
    context.resume_send(qp);
  }
}

/// What is under way goes on; nothing new begins. An acknowledge that nobody was asked for is asked for now.
void start_drain(Context& context, Qp& qp, bool notify) {
  qp.state = QpState::kSqd;
  qp.sqd_pending = true;
  qp.sqd_notify = notify;
  if (qp.ack_asked != qp.psn && qp.sq_cursor == qp.sq_started && !qp.rnr_waiting) rewind(context, qp);
  if (qp.sq.count() != 0) context.schedule_send(qp);
  check_drained(context, qp);
}

void change_state(Context& context, Qp& qp, QpState to, const QpAttr& attr, std::uint32_t mask) {
  switch (to) {
    case QpState::kReset: return reset(context, qp);
    case QpState::kErr: return enter_error(context, qp);
    case QpState::kSqd:
      if (qp.state != QpState::kSqd) start_drain(context, qp, (mask & kAttrSqdNotify) != 0 && attr.sqd_notify);
      return;
    case QpState::kRts:
      qp.state = to;
      qp.sqd_pending = false;
      if (qp.sq.count() != 0) context.schedule_send(qp);
      return;
    default: qp.state = to;
  }
}

}  // namespace

void set_datagram_mtu(Qp& qp) {
  if (qp.type != QpType::kUd && qp.type != QpType::kRawPacket) return;
  qp.mtu = 4096;
  qp.mtu_shift = 12;
}

void reset(Context& context, Qp& qp) {
  detach(context, qp);
  const Qp old = qp;
  qp = Qp{};
  qp.type = old.type;
  qp.service = old.service;
  qp.xrcd = old.xrcd;
  qp.signal_all = old.signal_all;
  qp.block_own_multicast = old.block_own_multicast;
  qp.strip_vlan = old.strip_vlan;
  qp.has_srq = old.has_srq;
  qp.self = old.self;
  qp.qpn = old.qpn;
  qp.pd = old.pd;
  qp.resource_limit = old.resource_limit;
  qp.sq = old.sq;
  qp.rq = old.rq;
  qp.shadow = old.shadow;
  qp.resources = old.resources;
  qp.send_cq = old.send_cq;
  qp.recv_cq = old.recv_cq;
  qp.max_send_sge = old.max_send_sge;
  qp.max_recv_sge = old.max_recv_sge;
  qp.max_inline = old.max_inline;
  qp.max_tso_header = old.max_tso_header;
  qp.srq = old.srq;
  qp.owner = old.owner;
  qp.counters = old.counters;
  set_datagram_mtu(qp);
  if (qp.sq.count() != 0) qp.sq.reset();
  if (qp.rq.count() != 0) qp.rq.reset();
  context.cold[qp.self] = QpCold{};
}

ModifyVerdict modify(Context& context, Qp& qp, const QpAttr& attr, std::uint32_t mask) {
  const ModifyVerdict verdict = check_modify(qp.type, qp.state, attr, mask);
  if (verdict.error != 0) return verdict;
  if ((mask & kAttrMaxDestRdAtomic) != 0 && attr.max_dest_rd_atomic > qp.resource_limit) {
    return {EINVAL, "max_dest_rd_atomic"};
  }
  const QpState to = (mask & kAttrState) != 0 ? attr.state : qp.state;
  if (to != QpState::kReset) {
    QpAttr& kept = context.cold[qp.self].attr;
    remember(kept, attr, mask);
    apply(context, qp, kept, mask);
  }
  if ((mask & kAttrState) != 0) change_state(context, qp, to, attr, mask);
  return {};
}

}  // namespace uroce::proto
