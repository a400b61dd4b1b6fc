// Faults of work requests (proto/state/faults.h). A work request that a rule chooses gets a failure when it is
// taken from its ring, and then fails as a malformed one does. QPs without rules pay nothing: the tests that lead
// here are those for the operations of the QP's type (Settings::operations_of) and for an SRQ
// (ReceiveQueue::diverted).
#pragma once

#include <cstdint>

#include "proto/state/context.h"

namespace uroce::proto {

/// Sets the QP's rules, nullptr: none. The counts of rules that it had before go on. Completions that they kept
/// back come.
void set_faults(Context& context, Qp& qp, QpFaults* faults);

/// What becomes of a work request.
struct Judgement {
  std::uint8_t failure = 0;  ///< it ends with that; 0: as without rules
  bool hides = false;        ///< a receive: it is not taken
  CompletionFault completion;
};

/// Tries the rules of the QP, which has some, on its next work request: `operation` is a bit of
/// FaultPlan::operations. `completes`: it makes a CQE if it ends with success; rules for completions pass over the
/// others. Raises the rules' events.
Judgement judge(Context& context, Qp& qp, std::uint64_t operation, bool completes);

}  // namespace uroce::proto
