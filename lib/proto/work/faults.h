// Faults of work requests (proto/state/faults.h). A work request that a rule chooses gets a failure when it is
// taken from its ring, and then fails as a malformed one does. QPs without rules pay nothing: the tests that lead
// here are those for the operations of the QP's type (Settings::operations_of) and for an SRQ
// (ReceiveQueue::diverted).
#pragma once

#include <cstdint>

#include "proto/state/context.h"

namespace uroce::proto {

/// Sets the QP's rules, nullptr: none. The counts of rules that it had before go on.
void set_faults(Qp& qp, QpFaults* faults);

/// Tries the rules of the QP, which has some, on its next work request: `operation` is a bit of
/// FaultPlan::operations. Returns the failure with which it ends, or 0, and raises events.
std::uint8_t judge(Context& context, Qp& qp, std::uint64_t operation);

}  // namespace uroce::proto
