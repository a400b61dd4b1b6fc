// How a send WQE ends: with success, or with an error that also stops the QP.
#pragma once

#include <cstdint>

#include "proto/state/context.h"

namespace uroce::proto {

/// Completes the oldest send WQE with success. The consumer index is published before each CQE; the caller
/// publishes it once more after a run of completions.
void complete_send(Context& context, Qp& qp);

/// Completes the oldest send WQE with `status`, and puts the QP into error.
void fail_send(Context& context, Qp& qp, std::uint8_t status);

}  // namespace uroce::proto
