// State shared by the parts of a transport (requester, completer, responder, ...): tables, active list, timers,
// completions and events. Each part is a set of functions over a Context and a Qp.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/slot_table.h"
#include "base/timer_wheel.h"
#include "memory/table.h"
#include "proto/state/ack_watch.h"
#include "proto/state/address_handles.h"
#include "proto/state/counters.h"
#include "proto/state/latency.h"
#include "proto/state/local_devices.h"
#include "proto/state/memory_in_use.h"
#include "proto/state/multicast.h"
#include "proto/state/packet_builder.h"
#include "proto/state/qp.h"
#include "proto/state/qp_events.h"
#include "proto/state/qpn_table.h"
#include "proto/state/send_scheduler.h"
#include "proto/state/srq.h"
#include "proto/state/types.h"
#include "queue/completion_queue.h"
#include "wire/packet.h"

namespace uroce::proto {

/// Whether the packet has these addresses, source and destination: `v4` or `v6`, as in the IP header.
inline bool is_on_path(const wire::RxPacket& packet, const std::uint32_t (&v4)[2], const std::byte* v6) {
  if (packet.ip_bytes == 40) return std::memcmp(packet.ip + 8, v6, 32) == 0;
  return std::memcmp(packet.ip + 12, v4, 8) == 0;
}

class Context {
 public:
  Context(const TransportConfig& config, memory::Table& memory);

  const TransportConfig config;
  memory::Table& memory;
  const wire::CrcEngine& crc;
  Counters counters;
  OperationLatencies latencies{};
  base::SlotTable<Qp> qps;
  std::pmr::vector<QpCold> cold;  ///< by QP slot
  QpnTable by_qpn;
  base::TimerWheel timers;  ///< by QP slot
  AckWatch ack_watch;       ///< of QP slots
  SendScheduler scheduler;  ///< of QP slots
  Nanos now = 0;            ///< time of the current call
  MemoryInUse in_use;       ///< see Transport::busy_with()
  AddressHandles address_handles;
  MulticastTable multicast;
  std::uint32_t port_mtu, max_frame;

  void note(std::uint64_t whose) { in_use.use(whose); }

  // --- active list: QPs that may have something to send ---
  void activate(Qp& qp) {
    if (qp.common.active) return;
    qp.common.active = true;
    scheduler.activate(qp.common.self);
  }
  /// The requester may have something to send.
  void schedule_send(Qp& qp) {
    qp.common.send_state = SendState::kReady;
    activate(qp);
  }
  /// The requester may have something to send, and goes before its session's QPs that are active already.
  void schedule_send_first(Qp& qp) {
    qp.common.send_state = SendState::kReady;
    if (qp.common.active) return;
    qp.common.active = true;
    scheduler.activate_first(qp.common.self);
  }
  /// The condition that blocked the requester may be gone.
  void resume_send(Qp& qp) {
    if (qp.common.send_state == SendState::kBlocked) schedule_send(qp);
  }
  /// See Congestion::shrink().
  void shrink_window(Qp& qp, CongestionCause cause) {
    if (!qp.congestion.shrink(cause, qp.requester.una, qp.requester.max_psn, qp.full_packet_cost())) return;
    note_event(qp, QpEventType::kWindowCut, qp.requester.una, static_cast<std::uint8_t>(cause),
               qp.congestion.window());
  }
  Qp* take_active() {
    const std::uint32_t next = scheduler.take();
    if (next == SendScheduler::kNone) return nullptr;
    Qp& qp = qps[next];
    qp.common.active = false;
    return &qp;
  }
  /// The QP `ahead` places after the next one, to be prefetched.
  Qp* peek_active(std::uint32_t ahead) {
    const std::uint32_t qp = scheduler.peek(ahead);
    return qp != SendScheduler::kNone ? &qps[qp] : nullptr;
  }
  void remove_active(Qp& qp) {
    if (!qp.common.active) return;
    qp.common.active = false;
    scheduler.remove(qp.common.self);
  }

  // --- timers: the wheel has one deadline for each QP, never later than Qp::next_deadline() ---
  void set_deadline(Qp& qp, Deadline which, Nanos when) {
    qp.deadline(which) = when;
    arm_timer(qp, when);
  }
  void arm_timer(Qp& qp, Nanos deadline) {
    if (deadline >= qp.retransmission.wheel_deadline) return;
    qp.retransmission.wheel_deadline = deadline;
    timers.set(qp.common.self, deadline);
  }

  // --- bytes of READ responses that may be in flight towards this worker, all QPs together ---
  /// A reservation expires after one to two of these periods: a peer that does not answer must not hold the budget.
  static constexpr Nanos kReadBudgetPeriod = 2 * kMillisecond;
  /// False: the QP waits for its turn.
  bool take_read_budget(Qp& qp, std::uint32_t cost);
  void release_read_budget(Qp& qp, std::uint32_t cost);
  void release_read_budget(Qp& qp) { release_read_budget(qp, qp.reads.reserved + qp.reads.reserved_before); }
  void remove_read_waiter(Qp& qp);
  /// When the QPs that wait try again at the latest; kNever: none waits.
  Nanos read_budget_timeout() const { return has_read_waiters() ? read_period_end_ : kNever; }
  void on_read_budget_timeout();

  // --- completions ---
  /// Returns a CQE with the fields of this QP; the caller fills in the others. `failure`: uroce_failure.
  uroce_cqe make_cqe(const Qp& qp, std::uint64_t wr_id, std::uint8_t failure = 0) const {
    uroce_cqe cqe{};
    cqe.wr_id = wr_id;
    cqe.qpn = qp.common.qpn.value;
    cqe.vendor_err = vendor_err_of(failure);
    cqe.status = static_cast<std::uint8_t>(cqe.vendor_err >> 4);
    cqe.src_qp = qp.common.dest_qpn.value;
    cqe.timestamp = now;
    return cqe;
  }
  void push(CqId id, const uroce_cqe& cqe, bool solicited);
  void set_cq(CqId id, queue::CqProducer* cq, std::uint64_t owner);
  std::span<const CqId> touched_cqs();
  void set_srq(SrqId id, Srq* srq);
  /// nullptr: there is no SRQ with that number.
  Srq* srq(SrqId id) const { return id.value < srqs_.size() ? srqs_[id.value] : nullptr; }
  /// Whether the CQ overran. Checked after a packet or a turn, when no function is in the middle of a QP.
  bool cq_failed(CqId id) const { return id.value < cqs_.size() && cqs_[id.value].failed; }

  // --- memory ---
  /// memory::Table::resolve() with this transport's cache of recent keys.
  memory::Verdict resolve(Key key, PdId pd, std::uint64_t address, std::uint64_t length, std::uint32_t need,
                          memory::Span& out, Qpn qpn = {}) {
    return memory.resolve(recent_keys_, key, pd, address, length, need, out, qpn);
  }

  /// The devices that this one reaches without a wire, itself among them, and its number there.
  const LocalDevices* local = nullptr;
  std::uint32_t device = 0;
  std::uint32_t sender_of(const Qp& qp) const { return LocalDevices::sender(device, qp.common.qpn); }

  /// Whether packets to QPs of this process may name their payload: Transport::allow_references().
  bool references = false;
  std::uint32_t lives = 0;           ///< of QPs, so far
  std::size_t held_completions = 0;  ///< by rules, of all QPs
  memory::Span source;               ///< payload of the current packet, if it came by reference

  // --- events ---
  void raise(AsyncEvent type, std::uint32_t object, std::uint64_t owner);
  std::size_t take_events(std::span<Event> out);
  void report(const Qp& qp, std::uint8_t cause, AsyncEvent event = {});
  QpEventLog qp_events;
  void note_event(const Qp& qp, QpEventType type, Psn psn, std::uint8_t cause, std::uint32_t value = 0) {
    if (!qp_events.on()) return;
    qp_events.add({.when = now,
                   .owner = qp.settings.owner,
                   .qpn = qp.common.qpn,
                   .psn = psn.value(),
                   .value = value,
                   .type = type,
                   .cause = cause});
  }
  bool any_failures() const { return failures_count_ != 0; }
  std::size_t take_failures(std::span<QpFailure> out);

  std::byte staging[4096];  ///< for memory that is not mapped

 private:
  struct CqSlot {
    queue::CqProducer* cq = nullptr;
    std::uint64_t owner = 0;
    bool touched = false;
    bool failed = false;
  };

  memory::Table::Recent recent_keys_;
  /// QPs that got no budget, first come, first served: [0] those with none in this round, [1] those with some.
  struct Waiters {
    std::uint32_t head = kNoQp, tail = kNoQp;
  };
  bool has_read_waiters() const { return waiters_[0].head != kNoQp || waiters_[1].head != kNoQp; }
  void wait_for_read_budget(Qp& qp);
  void wake_read_waiters();
  void advance_read_period();
  void expire_reservation(Qp& qp);

  Waiters waiters_[2];
  std::uint32_t read_round_ = 1;
  std::uint64_t read_reserved_ = 0, read_reserved_before_ = 0;  ///< in this period and in the one before
  std::uint32_t read_period_ = 0;
  Nanos read_period_end_ = 0;
  std::vector<CqSlot> cqs_;
  std::vector<Srq*> srqs_;
  std::vector<CqId> touched_, touched_out_;
  std::vector<Event> events_;  // a ring
  std::size_t events_first_ = 0, events_count_ = 0;
  std::array<QpFailure, 16> failures_;  // for the log: later ones are left out
  std::size_t failures_count_ = 0;
};

}  // namespace uroce::proto
