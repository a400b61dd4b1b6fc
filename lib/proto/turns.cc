#include "proto/turns.h"

#include <algorithm>
#include <span>

#include "proto/rc/requester.h"
#include "proto/rc/responder.h"
#include "proto/unreliable/send.h"
#include "proto/work/rate_limit.h"
#include "proto/work/teardown.h"

namespace uroce::proto {
namespace {

bool is_acknowledged(QpType type) { return type != QpType::kUc && type != QpType::kUd && !is_raw(type); }

/// What a turn has cost, for the fairness between users: bytes, and a constant for the time that each frame takes
/// besides its bytes.
constexpr std::uint32_t kTurnCost = 256, kFrameCost = 256;
std::uint32_t cost_of(std::span<const base::Frame> frames) {
  std::uint32_t cost = kTurnCost;
  for (const base::Frame& frame : frames) {
    const base::WireCost on_wire = base::wire_cost(frame);
    cost += static_cast<std::uint32_t>(on_wire.bytes + on_wire.packets * kFrameCost);
  }
  return cost;
}

}  // namespace

/// With thousands of QPs none is in the cache when its turn comes. Prefetches the state of a QP some turns ahead,
/// and the memory that the state of a nearer QP points to.
void Turns::prefetch_ahead() {
  if (const Qp* later = context_.peek_active(7)) prefetch_state<7>(*later);
  if (const Qp* next = context_.peek_active(3); next != nullptr && next->common.send_state == SendState::kReady) {
    __builtin_prefetch(next->requester.ring.peek_address());
    __builtin_prefetch(next->requester.ring.peek_address() + 64);
    __builtin_prefetch(&next->wqe(next->requester.fetched), 1);
    __builtin_prefetch(next->requester.ring.producer_address());
  }
}

std::uint32_t Turns::packets_of(const Qp& qp) const {
  const bool shared = users_compete(context_.now);
  return shared ? std::max(1u, kSharedTurnBytes >> qp.common.mtu_shift) : context_.config.quantum_packets;
}

/// What the QP owes its peer: at most half of its turn while it has requests of its own.
bool Turns::answer(Qp& qp, TxBurst& burst, std::uint32_t& budget) {
  std::uint32_t kept = 0;
  if (qp.common.send_state == SendState::kReady) {
    // A port with room for a single frame gets an answer and a request in turn.
    const auto room = static_cast<std::uint32_t>(std::min<std::size_t>(budget, burst.frames.size() - burst.count));
    kept = budget - room + (room + (qp.counters.sent_pkts & 1)) / 2;
  }
  budget -= kept;
  const bool more = responder::run(context_, qp, burst, budget);
  budget += kept;
  return more;
}

/// One turn of a QP: first what it owes its peer, then, with `requests`, its own requests. True: it has more to
/// send.
bool Turns::turn(Qp& qp, TxBurst& burst, std::uint32_t budget, bool requests) {
  const std::size_t begin = burst.count;
  bool more = responder::owes(qp) && answer(qp, burst, budget);
  if (requests && qp.common.send_state == SendState::kReady &&
      (!qp.requester.paced || rate_limit::admit(context_, qp, budget))) {
    const std::size_t first = burst.count;
    more |= is_acknowledged(qp.common.type) ? requester::run(context_, qp, burst, budget)
                                            : unreliable::run(context_, qp, burst, budget);
    if (qp.requester.paced) [[unlikely]]
      rate_limit::charge(context_, qp, burst.frames.subspan(first, burst.count - first));
  }
  for (std::size_t i = begin; i < burst.count; ++i) burst.frames[i].sender = context_.sender_of(qp);
  check_cqs(context_, qp);
  return more && qp.common.state != QpState::kErr;
}

/// A turn of a QP whose user may have a rate limit. Acknowledges leave in any case: the peer's timers wait for
/// them.
bool Turns::limited_turn(Qp& qp, TxBurst& burst) {
  UserRateLimit* const limit = qp.settings.user_limit;
  std::uint32_t budget = packets_of(qp);
  if (limit == nullptr) return turn(qp, burst, budget, true);
  const bool admitted = rate_limit::admit(context_, qp, *limit, budget);
  if (!admitted && qp.responder.answers_pending != 0) return false;
  const std::size_t first = burst.count;
  const bool more = turn(qp, burst, budget, admitted);
  rate_limit::charge(context_, *limit, burst.frames.subspan(first, burst.count - first));
  return more;
}

void Turns::charge(const Qp& qp, std::uint32_t cost) {
  SendScheduler& scheduler = context_.scheduler;
  scheduler.charge(qp.common.self, cost);
  if (std::exchange(user_changes_, scheduler.user_changes()) != scheduler.user_changes())
    users_compete_until_ = context_.now + kCompetition;
}

void Turns::run(TxBurst& burst) {
  while (!burst.full()) {
    prefetch_ahead();
    Qp* const qp = context_.take_active();
    if (qp == nullptr) return;
    const std::size_t first = burst.count;
    context_.note(mark_of(qp->common.pd));
    const bool more = has_user_limits_ ? limited_turn(*qp, burst) : turn(*qp, burst, packets_of(*qp), true);
    if (more) context_.activate(*qp);
    if (!context_.scheduler.is_shared()) continue;
    const std::uint32_t cost = cost_of(burst.frames.subspan(first, burst.count - first));
    charge(*qp, cost);
    burst.cost -= static_cast<std::int32_t>(cost);
    if (burst.cost <= 0) return;
  }
}

}  // namespace uroce::proto
