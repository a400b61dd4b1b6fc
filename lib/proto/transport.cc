#include "proto/transport.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/probe.h"
#include "proto/modify.h"
#include "proto/rc/acceptance.h"
#include "proto/rc/ack_timeout.h"
#include "proto/rc/completer.h"
#include "proto/rc/destroyed_qps.h"
#include "proto/rc/direct_placement.h"
#include "proto/rc/responder.h"
#include "proto/rc/rnr.h"
#include "proto/state/context.h"
#include "proto/turns.h"
#include "proto/unreliable/raw_packet.h"
#include "proto/unreliable/receive.h"
#include "proto/work/by_reference.h"
#include "proto/work/completion_counters.h"
#include "proto/work/faults.h"
#include "proto/work/held_completions.h"
#include "proto/work/latency.h"
#include "proto/work/teardown.h"
#include "wire/frame_template.h"

namespace uroce::proto {
namespace {

bool accepts_packets(QpState state) { return state >= QpState::kRtr && state <= QpState::kSqe; }

wire::Service service_of(QpType type) {
  switch (type) {
    case QpType::kRc: return wire::Service::kRc;
    case QpType::kUc: return wire::Service::kUc;
    case QpType::kUd:
    case QpType::kRawPacket:  // no packet names these by service
    case QpType::kWq: return wire::Service::kUd;
    default: return wire::Service::kXrc;
  }
}

/// Whether it is a packet of an RC or XRC QP's own service.
bool is_of_reliable(const Qp& qp, const wire::RxPacket& packet) {
  const wire::Service service = packet.info->service;
  return service == qp.common.service && (service == wire::Service::kRc || service == wire::Service::kXrc);
}

constexpr CqId kNoCq{~std::uint32_t{0}};
constexpr Qpn kMulticastQpn{0xffffff};

/// Refuses rings whose entries are smaller than a header, and a missing ring where the type needs one.
int check_create(const QpCreate& create) {
  const bool sends = has_send_queue(create.type);
  if (sends != (create.sq.count() != 0)) return EINVAL;
  if (sends && create.sq.stride() < sizeof(uroce_sq_entry)) return EINVAL;
  if (create.sq_shadow.size() < std::size_t{create.sq.count()} * create.sq.stride()) return EINVAL;
  if (!create.has_srq && create.rq.count() != 0 && create.rq.stride() < sizeof(uroce_rq_entry)) return EINVAL;
  if (create.max_recv_sge > kMaxSge) return EINVAL;
  return 0;
}

}  // namespace

struct Transport::Impl : Context {
  Impl(const TransportConfig& config, memory::Table& memory)
      : Context(config, memory), destroyed_qps(config.resource) {
    join(alone);
  }
  void join(LocalDevices& devices) {
    local = &devices;
    device = devices.add(config.mac, *this);
  }

  LocalDevices alone;

  Turns turns{*this};
  DestroyedQps destroyed_qps;
  Qpn expected;  ///< the QP whose state prefetch() fetches next

  Qp* find(QpIndex index) { return qps.holds(index.value) ? &qps[index.value] : nullptr; }

  /// A packet for this QP, or for a group to which it is attached.
  [[gnu::always_inline]] wire::ParseVerdict receive(Qp& qp, wire::RxPacket& packet);
  /// A packet for a group, or for a QPN that does not exist.
  void receive_without_qp(wire::RxPacket& packet);
  /// A packet that is not of an RC or XRC QP's own service.
  wire::ParseVerdict receive_other(Qp& qp, wire::RxPacket& packet);
  /// A packet of another service.
  void receive_foreign(Qp& qp, const wire::RxPacket& packet);
  /// The packet is valid.
  void count_received(Qp& qp, const wire::RxPacket& packet);
  void note_established(Qp& qp);
  void on_timer(Qp& qp);
  void on_deadline(Qp& qp, Deadline which);
};

Transport::Transport(const TransportConfig& config, memory::Table& memory)
    : impl_(std::make_unique<Impl>(config, memory)) {}
Transport::~Transport() = default;

void Transport::set_cq(CqId id, queue::CqProducer* cq, std::uint64_t owner) { impl_->set_cq(id, cq, owner); }
void Transport::set_srq(SrqId id, Srq* srq) { impl_->set_srq(id, srq); }
void Transport::set_address_handle(AhId id, PdId pd, const wire::PathAddress* path) {
  impl_->address_handles.set(id, pd, path);
}
void Transport::set_port_mtu(std::uint32_t bytes) { impl_->port_mtu = bytes; }
void Transport::set_max_frame(std::uint32_t bytes) { impl_->max_frame = bytes; }

int Transport::attach_multicast(QpIndex index, const wire::Address& group) {
  const Qp* const qp = impl_->find(index);
  if (qp == nullptr || qp->common.type != QpType::kUd || !group.is_multicast()) return EINVAL;
  return impl_->multicast.attach(group, index.value);
}
int Transport::detach_multicast(QpIndex index, const wire::Address& group) {
  return impl_->find(index) == nullptr ? EINVAL : impl_->multicast.detach(group, index.value);
}
bool Transport::wants_multicast(const wire::Address& group) const {
  return !impl_->multicast.members(group).empty();
}

int Transport::create(const QpCreate& create, QpIndex& out) {
  if (const int error = check_create(create); error != 0) return error;
  if (impl_->by_qpn.find(create.qpn) != QpnTable::kNone) return EEXIST;
  const std::uint32_t slot = impl_->qps.allocate();
  if (slot == impl_->qps.kNone) return ENOMEM;
  Qp& qp = impl_->qps[slot];
  qp.common.type = create.type;
  qp.common.service = service_of(create.type);
  qp.settings.xrcd = create.xrcd;
  set_datagram_mtu(qp);
  qp.common.self = slot;
  qp.life = qp.answers_life = ++impl_->lives;
  qp.common.qpn = create.qpn;
  qp.common.pd = create.pd;
  // An XRC QP has one of the two CQs: an SRQ names the CQ for its receives (annex A14).
  qp.requester.cq = has_send_queue(create.type) ? create.send_cq : kNoCq;
  qp.receives.cq = qp.common.service == wire::Service::kXrc ? kNoCq : create.recv_cq;
  qp.receives.shared = create.has_srq || create.type == QpType::kXrcRecv;
  qp.receives.special_end = create.type == QpType::kXrcRecv;
  qp.receives.srq = create.srq;
  qp.requester.reports = create.signal_all ? std::uint8_t{kAllReports} : std::uint8_t{0};
  qp.settings.block_own_multicast = create.block_own_multicast;
  qp.settings.strip_vlan = create.strip_vlan;
  qp.requester.ring = create.sq;
  qp.requester.head = qp.requester.cursor = qp.requester.started = qp.requester.fetched = create.sq.next_index();
  qp.receives.ring = qp.receives.shared || create.type == QpType::kXrcSend ? queue::WorkConsumer{} : create.rq;
  qp.settings.max_send_sge = create.max_send_sge;
  qp.receives.max_sge = create.max_recv_sge;
  qp.settings.max_inline = create.max_inline;
  qp.settings.max_tso_header = create.max_tso_header;
  qp.requester.shadow = create.sq_shadow.data();
  qp.answers.ring = reinterpret_cast<Resource*>(create.responder_resources.data());
  qp.answers.limit = static_cast<std::uint8_t>(
      std::min<std::size_t>(create.responder_resources.size() / kResponderResourceBytes, kMaxRdAtomic));
  qp.settings.owner = create.owner;
  qp.settings.user_limit = create.share.limit;
  if (create.share.limit != nullptr) impl_->turns.expect_user_limits();
  set_faults(QpIndex{slot}, create.faults);
  impl_->scheduler.attach(slot, create.owner, create.user, create.share.weight);
  impl_->cold[slot] = QpCold{};
  impl_->destroyed_qps.forget(create.qpn);
  if (!is_raw(create.type)) impl_->by_qpn.insert(create.qpn, slot);  // no packet names a raw QP
  out.value = slot;
  return 0;
}

ModifyVerdict Transport::modify(QpIndex index, const QpAttr& attr, std::uint32_t mask, Nanos now) {
  impl_->now = now;
  Qp* const qp = impl_->find(index);
  if (qp == nullptr) return {EINVAL, "no such QP"};
  return proto::modify(*impl_, *qp, attr, mask);
}

bool Transport::query(QpIndex index, QpSnapshot& out) const {
  Qp* const found = impl_->find(index);
  if (found == nullptr) return false;
  const Qp& qp = *found;
  out = QpSnapshot{};
  out.type = qp.common.type;
  out.state = qp.common.state;
  out.attr = impl_->cold[index.value].attr;
  out.attr.state = out.attr.cur_state = qp.common.state;
  out.attr.rq_psn = qp.responder.epsn;
  out.attr.sq_psn = qp.requester.psn;
  // In RESET, and until the client has emptied its end, the ring's indices are stale.
  const bool counts = qp.common.state == QpState::kRts || qp.common.state == QpState::kSqd;
  out.sq_outstanding = qp.requester.fetched - qp.requester.head +
                       (counts && qp.requester.ring.count() != 0 ? qp.requester.ring.available() : 0);
  if (qp.common.state != QpState::kReset && qp.common.state != QpState::kErr && qp.receives.ring.count() != 0)
    out.recv_posted = qp.receives.ring.available();
  out.psns_in_flight = psns_between(qp.requester.una, qp.requester.psn);
  out.window_bytes = qp.congestion.window();
  out.retries_left = qp.retransmission.retries_left;
  out.rnr_retries_left = qp.retransmission.rnr_retries_left;
  out.sq_draining = qp.requester.draining;
  out.rtt = qp.retransmission.rtt.mean();
  out.rtt_deviation = qp.retransmission.rtt.deviation();
  out.counters = qp.counters;
  return true;
}

int Transport::attach_counter(QpIndex index, QpCompletionCounters& table, std::uint32_t operations,
                              const CompletionCounter& counter) {
  Qp* const qp = impl_->find(index);
  if (qp == nullptr || (qp->common.state != QpState::kReset && qp->common.state != QpState::kInit)) return EINVAL;
  proto::attach_counter(*qp, table, operations, counter);
  return 0;
}

void Transport::set_faults(QpIndex index, QpFaults* faults) {
  Qp* const qp = impl_->find(index);
  if (qp == nullptr) return;
  proto::set_faults(*impl_, *qp, qp->common.type == QpType::kXrcRecv ? nullptr : faults);
  check_cqs(*impl_, *qp);  // completions that were kept back may have overrun one
}

SendProgress Transport::datagrams(QpIndex index) const {
  const Qp* const qp = impl_->find(index);
  if (qp == nullptr || qp->common.type != QpType::kUd) return {};
  if (qp->common.state != QpState::kRts && qp->common.state != QpState::kSqd) return {};
  return {qp->requester.cursor, qp->requester.fetched + qp->requester.ring.available()};
}

SendProgress Transport::report_sent(QpIndex index) {
  Qp* const qp = impl_->find(index);
  if (qp == nullptr) return {};
  impl_->note(mark_of(qp->common.pd));  // the ring is the client's memory
  const SendProgress progress = datagrams(index);
  impl_->note(0);
  if (progress.all_sent() || qp->requester.report_sent) return progress;
  qp->requester.report_sent = true;
  qp->report_sent_at = progress.posted;
  return progress;
}

void Transport::destroy(QpIndex index, Nanos now) {
  Qp* const qp = impl_->find(index);
  if (qp == nullptr) return;
  const bool answers = qp->common.type == QpType::kRc || qp->common.type == QpType::kXrcRecv;
  if (answers && accepts_packets(qp->common.state) && qp->responder.intake != Intake::kDead)
    impl_->destroyed_qps.note(*qp, now);
  detach(*impl_, *qp);
  forget_held(*impl_, *qp);
  if (qp->common.type == QpType::kUd) impl_->multicast.forget(index.value);
  if (!is_raw(qp->common.type)) impl_->by_qpn.erase(qp->common.qpn);
  impl_->scheduler.detach(index.value);
  impl_->qps.release(index.value);
}

void Transport::Impl::note_established(Qp& qp) {
  if (qp.established) return;
  qp.established = true;
  raise(AsyncEvent::kCommEstablished, qp.common.qpn.value, qp.settings.owner);
}

inline void Transport::Impl::count_received(Qp& qp, const wire::RxPacket& packet) {
  UROCE_PROBE(receive, qp.common.qpn.value, packet.bth.opcode, packet.bth.psn.value(), packet.payload_bytes);
  counters.rcvd_pkts += packet.psns;
  counters.rcvd_bytes += packet.payload_bytes;
  qp.counters.rcvd_pkts += packet.psns;
  if (packet.ce) [[unlikely]]
    responder::note_congestion(*this, qp, packet);
}

inline wire::ParseVerdict Transport::Impl::receive(Qp& qp, wire::RxPacket& packet) {
  note(mark_of(qp.common.pd));
  if (!accepts_packets(qp.common.state)) {
    ++counters.drop_bad_state;
    return wire::ParseVerdict::kOk;
  }
  if ((packet.bth.pkey & 0x7fff) != (qp.common.pkey & 0x7fff)) {
    ++counters.drop_bad_pkey;
    return wire::ParseVerdict::kOk;
  }
  if (qp.common.type != QpType::kUd &&
      (packet.sender != qp.common.peer_sender || !is_on_path(packet, qp.common.path_v4, qp.path_v6))) {
    ++counters.drop_wrong_source;
    return wire::ParseVerdict::kOk;
  }
  if (!is_of_reliable(qp, packet)) return receive_other(qp, packet);
  if (packet.by_reference() && !resolve_reference(*this, qp, packet)) [[unlikely]] {
    ++counters.drop_reference;
    return wire::ParseVerdict::kOk;
  }
  if (packet.icrc_pending() && !may_be_placed(qp, packet)) [[unlikely]] {
    const wire::ParseVerdict verdict = wire::verify_icrc(packet);
    if (verdict != wire::ParseVerdict::kOk) return verdict;
  }
  Plan plan;
  make_plan(*this, qp, packet, plan);
  if (packet.icrc_pending()) {
    const wire::ParseVerdict verdict = verify_and_place(*this, qp, plan, packet);
    if (verdict != wire::ParseVerdict::kOk) return verdict;
  }
  count_received(qp, packet);
  if (qp.common.state == QpState::kRtr) [[unlikely]]
    note_established(qp);
  if (packet.info->has(wire::kResponse)) {
    completer::receive(*this, qp, packet, plan);
  } else {
    responder::receive(*this, qp, packet, plan);
  }
  if (packet.by_reference()) [[unlikely]]
    end_reference(*this, packet);
  check_cqs(*this, qp);
  return wire::ParseVerdict::kOk;
}

wire::ParseVerdict Transport::Impl::receive_other(Qp& qp, wire::RxPacket& packet) {
  if (packet.icrc_pending()) {
    const wire::ParseVerdict verdict = wire::verify_icrc(packet);
    if (verdict != wire::ParseVerdict::kOk) return verdict;
  }
  count_received(qp, packet);
  if (packet.info->service != qp.common.service) {
    receive_foreign(qp, packet);
  } else if (qp.common.type == QpType::kUd) {
    unreliable::receive_datagram(*this, qp, packet);
  } else {
    if (qp.common.state == QpState::kRtr) note_established(qp);
    unreliable::receive_connected(*this, qp, packet);
  }
  check_cqs(*this, qp);
  return wire::ParseVerdict::kOk;
}

wire::ParseVerdict Transport::receive(wire::RxPacket& packet, Nanos now) {
  Impl& impl = *impl_;
  impl.now = now;
  const std::uint32_t slot = impl.by_qpn.find(packet.bth.dest_qpn);
  if (slot != QpnTable::kNone) [[likely]]
    return impl.receive(impl.qps[slot], packet);
  impl.receive_without_qp(packet);
  return wire::ParseVerdict::kOk;
}

void Transport::Impl::receive_without_qp(wire::RxPacket& packet) {
  const bool to_group =
      packet.multicast && packet.bth.dest_qpn == kMulticastQpn && packet.info->service == wire::Service::kUd;
  const auto members =
      to_group ? multicast.members(packet.destination()) : std::span<const MulticastTable::Attachment>();
  if (members.empty()) counters.drop_no_qp += !destroyed_qps.receive(*this, packet);
  for (const MulticastTable::Attachment& member : members) receive(qps[member.qp], packet);
}

void Transport::Impl::receive_foreign(Qp& qp, const wire::RxPacket& packet) {
  if (packet.info->service != wire::Service::kCnp || qp.common.type == QpType::kUd) {
    ++counters.drop_wrong_service;
    return;
  }
  ++counters.rp_cnp_handled;
  UROCE_PROBE(mark, qp.common.qpn.value, 1);
  shrink_window(qp, CongestionCause::kCnp);
}

void Transport::receive_frame(QpIndex index, const ReceivedFrame& frame, Nanos now) {
  impl_->now = now;
  Qp* const qp = impl_->find(index);
  if (qp == nullptr || !is_raw(qp->common.type)) return;
  if (!accepts_packets(qp->common.state)) {
    ++impl_->counters.drop_bad_state;
    return;
  }
  impl_->note(mark_of(qp->common.pd));
  raw::receive(*impl_, *qp, frame);
  check_cqs(*impl_, *qp);
}

void Transport::prefetch(Qpn qpn) {
  impl_->by_qpn.prefetch(qpn);
  const std::uint32_t slot = impl_->by_qpn.find(std::exchange(impl_->expected, qpn));
  if (slot != QpnTable::kNone) prefetch_state<4>(impl_->qps[slot]);
}

void Transport::doorbell(QpIndex index) {
  Qp* const qp = impl_->find(index);
  if (qp == nullptr) return;
  if (qp->common.state == QpState::kRts && has_send_queue(qp->common.type)) {
    impl_->schedule_send(*qp);
  } else if (qp->common.state == QpState::kErr || qp->common.state == QpState::kSqe) {
    flush_posted(*impl_, *qp);
  }
}

void Transport::measured_doorbell(QpIndex index, Nanos rung) {
  Qp* const qp = impl_->find(index);
  if (qp != nullptr && qp->common.state == QpState::kRts && has_send_queue(qp->common.type)) {
    begin_latency(*qp, rung);
  }
  doorbell(index);
}

/// The wheel's deadline of this QP has come: serves the deadlines that are due, and sets the wheel to the next.
void Transport::Impl::on_timer(Qp& qp) {
  qp.retransmission.wheel_deadline = kNever;
  note(mark_of(qp.common.pd));
  for (const Deadline which : kDeadlines) {
    if (qp.deadline(which) > now) continue;
    qp.deadline(which) = kNever;
    on_deadline(qp, which);
  }
  if (const Nanos next = qp.next_deadline(); next != kNever) arm_timer(qp, next);
}

void Transport::Impl::on_deadline(Qp& qp, Deadline which) {
  switch (which) {
    case Deadline::kRnr: return on_rnr_timeout(*this, qp);
    case Deadline::kAck: return on_ack_timeout(*this, qp);
    case Deadline::kPace:
      resume_send(qp);
      if (qp.settings.user_limit != nullptr) activate(qp);
      return;
    case Deadline::kFlush: return poll_flush(*this, qp);
    case Deadline::kLateCompletion: return release_held(*this, qp);
  }
}

void Transport::advance(Nanos now, bool rx_pending) {
  Impl& impl = *impl_;
  impl.now = now;
  impl.timers.advance(now, [&impl](std::uint32_t slot) {
    Qp& qp = impl.qps[slot];
    impl.on_timer(qp);
    check_cqs(impl, qp);
  });
  if (impl.read_budget_timeout() <= now) [[unlikely]]
    impl.on_read_budget_timeout();
  while (!rx_pending && impl.ack_watch.due(now)) {
    prefetch_state<4>(impl.qps[impl.ack_watch.peek(4)]);
    on_ack_watch(impl, impl.qps[impl.ack_watch.take()]);
  }
}

Nanos Transport::next_timeout() const {
  return std::min({impl_->timers.next_timeout(), impl_->ack_watch.next(), impl_->read_budget_timeout()});
}

bool Transport::transmit(TxBurst& burst, Nanos now) {
  Impl& impl = *impl_;
  impl.now = now;
  if (impl.destroyed_qps.owes()) [[unlikely]]
    impl.destroyed_qps.transmit(impl, burst);
  impl.turns.run(burst);
  return wants_transmit();
}

bool Transport::wants_transmit() const { return impl_->scheduler.any() || impl_->destroyed_qps.owes(); }

void Transport::join(LocalDevices& devices) { impl_->join(devices); }
void Transport::allow_references(bool allowed) { impl_->references = allowed; }

bool Transport::users_compete(Nanos now) const { return impl_->turns.users_compete(now); }

std::span<const CqId> Transport::touched_cqs() { return impl_->touched_cqs(); }
std::size_t Transport::take_events(std::span<Event> out) { return impl_->take_events(out); }
bool Transport::any_failures() const { return impl_->any_failures(); }
std::size_t Transport::take_failures(std::span<QpFailure> out) { return impl_->take_failures(out); }
const Counters& Transport::counters() const { return impl_->counters; }
const OperationLatencies& Transport::latencies() const { return impl_->latencies; }
void Transport::clear_latencies() { impl_->latencies = {}; }

QpEventLog& Transport::qp_events() { return impl_->qp_events; }

BusyWith Transport::busy_with() const { return impl_->in_use.look(); }
void Transport::note_busy_with(std::uint64_t mark) { impl_->note(mark); }

}  // namespace uroce::proto
