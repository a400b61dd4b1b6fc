#include "proto/work/faults.h"

#include <algorithm>

#include "proto/work/completion_counters.h"
#include "proto/work/held_completions.h"

namespace uroce::proto {
namespace {

constexpr SrqId kNoSrq{~std::uint32_t{0}};

/// Whether the peer of a connected QP is the rule's.
bool is_peer(const FaultPlan& plan, const Qp& qp) {
  if (plan.peer && *plan.peer != qp.common.dest_qpn) return false;
  if (!plan.peer_address) return true;
  const auto& bytes = plan.peer_address->bytes;
  return std::memcmp(qp.path_v6, bytes.data(), bytes.size()) == 0;
}

/// An event without the failure that it usually reports. A QP that lacks the object does not raise it.
void raise(Context& context, const Qp& qp, AsyncEvent event, bool receive) {
  std::uint32_t object = qp.common.qpn.value;
  switch (event) {
    case AsyncEvent::kCqError: object = (receive ? qp.receives.cq : qp.requester.cq).value; break;
    case AsyncEvent::kSrqError:
    case AsyncEvent::kSrqLimitReached:
      if (!qp.receives.shared) return;
      object = qp.settings.faults->srq.value;
      break;
    case AsyncEvent::kWqFatal:
      if (qp.common.type != QpType::kWq) return;
      break;
    default: break;
  }
  context.raise(event, object, qp.settings.owner);
}

/// The counts of rules that stay, and what they chose for work requests under way.
void take_over(QpFaults& faults, const QpFaults& old) {
  faults.sends.chosen = old.sends.chosen;
  faults.receives.chosen = old.receives.chosen;
  for (QpFaults::Entry& entry : faults.entries) {
    const auto same = std::find_if(old.entries.begin(), old.entries.end(),
                                   [&](const QpFaults::Entry& each) { return each.rule == entry.rule; });
    if (same != old.entries.end()) entry.matches = same->matches;
  }
}

}  // namespace

void set_faults(Context& context, Qp& qp, QpFaults* faults) {
  if (const QpFaults* const old = qp.settings.faults; old != nullptr) {
    release_all_held(context, qp);
    qp.receives.srq = old->srq;
    if (faults != nullptr) take_over(*faults, *old);
  }
  const auto type = static_cast<std::uint32_t>(qp.common.type);
  qp.settings.faults = faults;
  qp.settings.operations_of = faults == nullptr && type < 16 ? static_cast<std::uint16_t>(1u << type) : 0;
  qp.receives.diverted = qp.receives.shared || faults != nullptr;
  const bool holds = faults != nullptr && faults->hold();
  qp.receives.special_end = qp.common.type == QpType::kXrcRecv || counts_receives(qp) || holds;
  qp.requester.reports &= static_cast<std::uint8_t>(~kRuledReports);
  if (holds) qp.requester.reports |= kRuledReports;
  if (faults == nullptr) return;
  faults->srq = qp.receives.srq;
  qp.receives.srq = kNoSrq;
}

Judgement judge(Context& context, Qp& qp, std::uint64_t operation, bool completes) {
  const bool receive = operation == FaultPlan::kReceives;
  for (QpFaults::Entry& entry : qp.settings.faults->entries) {
    FaultRule& rule = *entry.rule;
    if ((rule.operations & operation) == 0 || !is_peer(rule, qp)) continue;
    if (rule.for_completions() && !completes) continue;
    if (!rule.take(entry.stream, ++entry.matches)) continue;
    if (rule.event) raise(context, qp, *rule.event, receive);
    // The end of a receive that fails raises QP_FATAL by itself.
    if (rule.fatal && !receive) raise(context, qp, AsyncEvent::kQpFatal, receive);
    if (rule.ends()) return {rule.failure, rule.hides, rule.completion};
  }
  return {};
}

}  // namespace uroce::proto
