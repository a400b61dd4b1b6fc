#include "proto/state/context.h"

#include <algorithm>
#include <utility>

#include "base/probe.h"

namespace uroce::proto {

Context::Context(const TransportConfig& cfg, memory::Table& table)
    : config(cfg),
      memory(table),
      crc(wire::crc_engine()),
      qps(cfg.max_qps, cfg.resource),
      cold(cfg.max_qps, cfg.resource),
      by_qpn(cfg.max_qps, cfg.resource),
      timers(cfg.max_qps, cfg.resource),
      ack_watch(cfg.max_qps, cfg.resource),
      scheduler(cfg.max_qps, cfg.resource),
      address_handles(cfg.max_ahs, cfg.resource),
      multicast(cfg.max_attachments),
      port_mtu(cfg.port_mtu),
      max_frame(cfg.max_frame),
      cqs_(cfg.max_cqs),
      srqs_(cfg.max_srqs),
      events_(std::size_t{cfg.max_qps} * 2 + 64) {
  touched_.reserve(cfg.max_cqs);
  touched_out_.reserve(cfg.max_cqs);
}

bool Context::take_read_budget(Qp& qp, std::uint32_t cost) {
  advance_read_period();
  expire_reservation(qp);
  // The answer to a request that is sent again after its reservation expired is not expected any more.
  if (qp.reads.unanswered) return true;
  const std::uint64_t limit = config.receive_ring_bytes, used = read_reserved_ + read_reserved_before_;
  const std::uint64_t own = qp.reads.reserved + qp.reads.reserved_before;
  // A request leaves room for smaller ones, and no QP takes more than an eighth while others wait.
  const std::uint64_t room = std::min<std::uint64_t>(limit / 16, std::uint64_t{cost} * 8);
  const bool fits = used + cost + room <= limit && (own + cost <= limit / 8 || own == 0 || !has_read_waiters());
  // A single request is admitted regardless of its size; otherwise a small ring would stop all READs.
  if (used != 0 && !fits) {
    wait_for_read_budget(qp);
    return false;
  }
  qp.reads.round = read_round_;
  read_reserved_ += cost;
  qp.reads.reserved += cost;
  return true;
}

void Context::wait_for_read_budget(Qp& qp) {
  if (qp.reads.waits) return;
  qp.reads.waits = true;
  qp.reads.next_waiter = kNoQp;
  Waiters& list = waiters_[qp.reads.round == read_round_ ? 1 : 0];
  (list.tail == kNoQp ? list.head : qps[list.tail].reads.next_waiter) = qp.common.self;
  list.tail = qp.common.self;
}

void Context::release_read_budget(Qp& qp, std::uint32_t cost) {
  if (qp.reads.period != read_period_) expire_reservation(qp);
  const std::uint32_t before = std::min(cost, qp.reads.reserved_before);
  const std::uint32_t recent = std::min(cost - before, qp.reads.reserved);
  qp.reads.reserved_before -= before;
  read_reserved_before_ -= before;
  qp.reads.reserved -= recent;
  read_reserved_ -= recent;
  // Once a quarter of the budget is free, all waiters try again.
  if (!has_read_waiters() || read_reserved_ + read_reserved_before_ > config.receive_ring_bytes / 4 * 3) return;
  wake_read_waiters();
}

/// All waiters try again, ahead of the QPs that are active already (the QP that releases budget had its share). QPs
/// that got no budget in the last round go first. A QP that gets none again keeps waiting.
void Context::wake_read_waiters() {
  ++read_round_;
  std::uint32_t last_first = kNoQp;
  for (Waiters& list : waiters_) {
    for (std::uint32_t i = list.head; i != kNoQp;) {
      const std::uint32_t next = qps[i].reads.next_waiter;
      qps[i].reads.next_waiter = last_first;
      last_first = i;
      i = next;
    }
    list = Waiters{};
  }
  for (std::uint32_t i = last_first; i != kNoQp; i = qps[i].reads.next_waiter) {
    qps[i].reads.waits = false;
    schedule_send_first(qps[i]);
  }
}

void Context::on_read_budget_timeout() {
  advance_read_period();
  wake_read_waiters();
}

void Context::advance_read_period() {
  if (now < read_period_end_) return;
  const bool idle = now - read_period_end_ >= kReadBudgetPeriod;
  read_reserved_before_ = idle ? 0 : read_reserved_;
  read_reserved_ = 0;
  read_period_ += idle ? 2 : 1;
  read_period_end_ = now + kReadBudgetPeriod;
}

/// Brings the QP's reservations to the current period.
void Context::expire_reservation(Qp& qp) {
  const std::uint32_t periods = read_period_ - qp.reads.period;
  if (periods == 0) return;
  const std::uint32_t expired = qp.reads.reserved_before + (periods > 1 ? qp.reads.reserved : 0);
  if (expired != 0) qp.reads.unanswered = true;
  qp.reads.reserved_before = periods > 1 ? 0 : qp.reads.reserved;
  qp.reads.reserved = 0;
  qp.reads.period = read_period_;
}

void Context::remove_read_waiter(Qp& qp) {
  if (!qp.reads.waits) return;
  qp.reads.waits = false;
  for (Waiters& list : waiters_) {
    std::uint32_t previous = kNoQp, i = list.head;
    for (; i != kNoQp && i != qp.common.self; i = qps[i].reads.next_waiter) previous = i;
    if (i == kNoQp) continue;
    (previous == kNoQp ? list.head : qps[previous].reads.next_waiter) = qp.reads.next_waiter;
    if (list.tail == qp.common.self) list.tail = previous;
    return;
  }
}

void Context::push(CqId id, const uroce_cqe& cqe, bool solicited) {
  if (id.value >= cqs_.size() || cqs_[id.value].cq == nullptr) return;
  CqSlot& slot = cqs_[id.value];
  UROCE_PROBE(completion, cqe.qpn, cqe.wr_id, cqe.opcode, cqe.status, cqe.byte_len);
  if (!slot.cq->push(cqe, solicited) && !slot.failed) {
    slot.failed = true;
    raise(AsyncEvent::kCqError, id.value, slot.owner);
  }
  if (!slot.touched) {
    slot.touched = true;
    touched_.push_back(id);
  }
}

void Context::set_cq(CqId id, queue::CqProducer* cq, std::uint64_t owner) {
  if (id.value >= cqs_.size()) return;
  CqSlot& slot = cqs_[id.value];
  slot.cq = cq;
  slot.owner = owner;
  slot.failed = false;
}

void Context::set_srq(SrqId id, Srq* srq) {
  if (id.value < srqs_.size()) srqs_[id.value] = srq;
}

std::span<const CqId> Context::touched_cqs() {
  touched_out_.swap(touched_);
  touched_.clear();
  for (const CqId id : touched_out_) cqs_[id.value].touched = false;
  return touched_out_;
}

void Context::raise(AsyncEvent type, std::uint32_t object, std::uint64_t owner) {
  if (events_count_ == events_.size()) return;  // full: the owner does not take events
  std::size_t at = events_first_ + events_count_++;
  if (at >= events_.size()) at -= events_.size();
  events_[at] = {type, object, owner};
}

void Context::report(const Qp& qp, std::uint8_t cause, AsyncEvent event) {
  note_event(qp, QpEventType::kFailed, qp.requester.una, cause, static_cast<std::uint32_t>(event));
  if (failures_count_ == failures_.size()) return;
  QpFailure& failure = failures_[failures_count_++];
  failure = {qp.common.qpn, qp.common.dest_qpn, {}, qp.settings.owner, cause, event};
  std::memcpy(failure.peer.bytes.data(), qp.path_v6, failure.peer.bytes.size());
}

std::size_t Context::take_failures(std::span<QpFailure> out) {
  const std::size_t taken = std::min(out.size(), std::exchange(failures_count_, 0));
  std::copy_n(failures_.begin(), taken, out.begin());
  return taken;
}

std::size_t Context::take_events(std::span<Event> out) {
  std::size_t taken = 0;
  while (taken < out.size() && events_count_ != 0) {
    out[taken++] = events_[events_first_];
    if (++events_first_ == events_.size()) events_first_ = 0;
    --events_count_;
  }
  return taken;
}

}  // namespace uroce::proto
