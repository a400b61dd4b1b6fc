// Completions that a rule of `urocectl fault verbs` delays, swaps or drops. The work request itself is executed as
// any other, and a peer sees nothing. Its place in the send queue is free when its completion comes, as a program
// gets it back by polling (of a lost one, at once). QPs without such a rule do not come here: the tests that
// lead here are those for QPs that report more than signaled WQEs (Requester::reports) and for XRC targets
// (ReceiveQueue::special_end).
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/state/context.h"

namespace uroce::proto {

/// Completions that are held at most: of one queue, and of all queues of a worker. With one more the oldest of its
/// queue comes.
constexpr std::size_t kMostHeld = 4096, kMostHeldByWorker = std::size_t{1} << 18u;

/// A rule chose what becomes of the completion of send WQE `index`, if that ends with success.
void choose_completion(Qp& qp, std::uint32_t index, const CompletionFault& fault);
/// The same of the receive that is being taken.
void choose_receive(Qp& qp, const CompletionFault& fault);

/// The completion of the send WQE before Requester::head, or of the receive, of a QP with rules: into its CQ, now
/// or later, or nowhere.
void hold_send(Context& context, Qp& qp);
void hold_receive(Context& context, Qp& qp, const uroce_cqe& cqe, bool solicited);

/// The first entry of the send queue that its client may not use again, of a QP with rules.
std::uint32_t first_kept(const Qp& qp);
/// Publishes which entries of the send queue the client may use again: those before Requester::head and the oldest
/// held completion, and, as with an adapter, those before the newest one that has come.
inline void publish_free(Qp& qp) {
  const bool ruled = (qp.requester.reports & kRuledReports) != 0;
  qp.requester.ring.publish_consumed(ruled ? first_kept(qp) : qp.requester.head);
}

/// Completes what is due, and sets the deadline of the next.
void release_held(Context& context, Qp& qp);
/// Completes all that is held, as the rules change.
void release_all_held(Context& context, Qp& qp);
/// The same before a completion with an error; no later WQE of the send queue will end with success.
void end_held(Context& context, Qp& qp);
/// As a reset, or the end of the QP, forgets the completions of a queue.
void forget_held(Context& context, Qp& qp);

}  // namespace uroce::proto
