#include "proto/work/held_completions.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "proto/work/send_completion.h"

namespace uroce::proto {
namespace {

using enum CompletionFault::Kind;

bool is_after(std::uint32_t index, std::uint32_t other) { return static_cast<std::int32_t>(index - other) > 0; }

/// Takes what was chosen for WQE `index` out of the queue. WQEs that failed or were flushed are passed over.
CompletionFault take_chosen(HeldCompletions& queue, std::uint32_t index) {
  while (!queue.chosen.empty()) {
    const auto after = static_cast<std::int32_t>(queue.chosen.front().index - index);
    if (after > 0) break;
    const CompletionFault fault = queue.chosen.front().fault;
    queue.chosen.pop_front();
    if (after == 0) return fault;
  }
  return {};
}

/// Completes what is due at `now`. Returns when the oldest of the rest is due.
Nanos release(Context& context, Qp& qp, CqId cq, HeldCompletions& queue, Nanos now) {
  auto& held = queue.held;
  while (!held.empty()) {
    if (held.front().swapped && held.size() > 1) {
      if (std::exchange(held[1].swapped, false)) held[1].until = 0;
      held[0].swapped = false;
      held[0].until = 0;
      std::swap(held[0], held[1]);
    }
    const bool room = held.size() <= kMostHeld && context.held_completions <= kMostHeldByWorker;
    if (held.front().until > now && room) return held.front().until;
    const HeldCompletions::Held oldest = held.front();
    held.pop_front();
    --context.held_completions;
    if (&queue == &qp.settings.faults->sends) {
      if (is_after(oldest.index + 1, queue.given)) queue.given = oldest.index + 1;
      publish_free(qp);
    }
    context.push(cq, oldest.cqe, oldest.solicited);
  }
  return kNever;
}

void release_both(Context& context, Qp& qp, Nanos now) {
  QpFaults& faults = *qp.settings.faults;
  const Nanos send = release(context, qp, qp.requester.cq, faults.sends, now);
  const Nanos receive = release(context, qp, qp.receives.cq, faults.receives, now);
  context.set_deadline(qp, Deadline::kLateCompletion, std::min(send, receive));
}

void hold(Context& context, Qp& qp, HeldCompletions& queue, const CompletionFault& fault, std::uint32_t index,
          const uroce_cqe& cqe, bool solicited) {
  if (fault.kind == kLost) return;
  const bool later = fault.kind != kNone;
  ++context.held_completions;
  if (queue.held.empty()) queue.given = index;
  queue.held.push_back({cqe, index, solicited, fault.kind == kSwapped, later ? context.now + fault.delay : 0});
  release_both(context, qp, context.now);
}

}  // namespace

void choose_completion(Qp& qp, std::uint32_t index, const CompletionFault& fault) {
  if (fault.kind != kNone) qp.settings.faults->sends.chosen.push_back({index, fault});
}

void choose_receive(Qp& qp, const CompletionFault& fault) {
  auto& chosen = qp.settings.faults->receives.chosen;
  chosen.clear();  // a receive that failed left it
  if (fault.kind != kNone) chosen.push_back({0, fault});
}

void hold_send(Context& context, Qp& qp) {
  const std::uint32_t index = qp.requester.head - 1;
  HeldCompletions& queue = qp.settings.faults->sends;
  hold(context, qp, queue, take_chosen(queue, index), index, cqe_of(context, qp, qp.wqe(index)), false);
}

void hold_receive(Context& context, Qp& qp, const uroce_cqe& cqe, bool solicited) {
  HeldCompletions& queue = qp.settings.faults->receives;
  hold(context, qp, queue, take_chosen(queue, 0), 0, cqe, solicited);
}

std::uint32_t first_kept(const Qp& qp) {
  const auto& held = qp.settings.faults->sends.held;
  if (held.empty()) return qp.requester.head;
  const bool swapped = held.size() > 1 && is_after(held[0].index, held[1].index);
  const std::uint32_t oldest = held[swapped ? 1 : 0].index, given = qp.settings.faults->sends.given;
  return is_after(given, oldest) ? given : oldest;
}

void release_held(Context& context, Qp& qp) {
  if (qp.settings.faults != nullptr) release_both(context, qp, context.now);
}

void release_all_held(Context& context, Qp& qp) {
  if (qp.settings.faults != nullptr) release_both(context, qp, kNever);
}

void end_held(Context& context, Qp& qp) {
  if (qp.settings.faults == nullptr) return;
  release_both(context, qp, kNever);
  qp.settings.faults->sends.chosen.clear();
}

void forget_held(Context& context, Qp& qp) {
  if (qp.settings.faults == nullptr) return;
  for (HeldCompletions* const queue : {&qp.settings.faults->sends, &qp.settings.faults->receives}) {
    context.held_completions -= queue->held.size();
    *queue = {};
  }
}

}  // namespace uroce::proto
