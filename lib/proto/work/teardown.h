// How a QP ends its work: error, drain, reset.
#pragma once

#include "proto/state/context.h"

namespace uroce::proto {

/// To ERR: every WQE still posted completes with WR_FLUSH_ERR, send queue first, each queue in order.
void enter_error(Context& context, Qp& qp);

/// To SQE, of services without acknowledges: every send WQE still posted is flushed, receives go on.
void enter_send_error(Context& context, Qp& qp);

/// Raises the event that belongs to a local failure, and goes to ERR.
void fail_fatally(Context& context, Qp& qp);

/// Flushes what was posted since to a QP in ERR, or its send queue in SQE. True: there was something.
bool flush_posted(Context& context, Qp& qp);

/// The same by the clock: receives are posted without a doorbell. Sets the timer for the next look.
void poll_flush(Context& context, Qp& qp);

/// In SQD: raises the event once all that was begun is complete.
void check_drained(Context& context, Qp& qp);

/// Whatever links the QP to others (lists, timer, budget) is undone.
void detach(Context& context, Qp& qp);

}  // namespace uroce::proto
