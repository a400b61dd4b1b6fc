// How the work of a QP ends: ERR, SQE, SQD (IBTA vol. 1, 10.3.1: QP states).
#pragma once

#include "proto/state/context.h"

namespace uroce::proto {

/// Enters ERR: all posted WQEs complete with WR_FLUSH_ERR, the send queue first, each queue in order.
void enter_error(Context& context, Qp& qp);

/// Enters SQE (unreliable services): all posted send WQEs are flushed; receives continue.
void enter_send_error(Context& context, Qp& qp);

/// Raises QP_FATAL after a local failure, and enters ERR.
void fail_fatally(Context& context, Qp& qp);

/// As fail_fatally(), if a CQ of the QP overran. To be called after a packet or a turn.
inline void check_cqs(Context& context, Qp& qp) {
  if (context.cq_failed(qp.requester.cq) || context.cq_failed(qp.receives.cq)) fail_fatally(context, qp);
}

/// Flushes the WQEs that were posted to a QP in ERR since, or to the send queue in SQE. True: there were some.
bool flush_posted(Context& context, Qp& qp);

/// Deadline::kFlush: flushes posted WQEs, since receives are posted without a doorbell, and sets the next deadline.
void poll_flush(Context& context, Qp& qp);

/// In SQD: raises the event once all WQEs that were begun are complete.
void check_drained(Context& context, Qp& qp);

/// UD: raises kDatagramsSent if what is to be reported has been sent (Transport::report_sent()).
void check_sent(Context& context, Qp& qp);
/// Raises kDatagramsSent if it was requested: the rest is flushed.
void report_flushed(Context& context, Qp& qp);

/// Removes the QP from lists, timers and the READ budget.
void detach(Context& context, Qp& qp);

}  // namespace uroce::proto
