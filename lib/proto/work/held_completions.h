// Completions that a rule of `urocectl fault verbs` delays, swaps or drops. The work request itself is executed as
// any other: its resources are free, and a peer sees nothing. QPs without such a rule do not come here: the tests
// that lead here are those for QPs that report more than signaled WQEs (Requester::reports) and for XRC targets
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

/// Completes what is due, and sets the deadline of the next.
void release_held(Context& context, Qp& qp);
/// Completes all that is held, as the rules change.
void release_all_held(Context& context, Qp& qp);
/// The same before a completion with an error; no later WQE of the send queue will end with success.
void end_held(Context& context, Qp& qp);
/// As a reset, or the end of the QP, forgets the completions of a queue.
void forget_held(Context& context, Qp& qp);

}  // namespace uroce::proto
