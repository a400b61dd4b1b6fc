#include "proto/rc/rnr.h"

#include <algorithm>
#include <array>

#include "proto/rc/recovery.h"
#include "proto/work/send_completion.h"

namespace uroce::proto {
namespace {

/// In units of 10 us; code 0 is the longest.
constexpr std::array<std::uint32_t, 32> kRnrDelays = {
    65536, 1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,   192,
    256,   384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

/// Duration of an RNR timer code (IBTA vol. 1, table 45).
Nanos rnr_delay(std::uint8_t timer_code) { return kRnrDelays[timer_code & 31] * (10 * kMicrosecond); }

/// Whether an RNR NAK for una was waited for before, and nothing was sent since.
bool is_old_rnr_nak(const Qp& qp) {
  return qp.recovery.rnr_resumed != 0 && qp.recovery.rnr_psn == qp.requester.una &&
         qp.requester.psn == qp.requester.una;
}

/// A second RNR NAK for una that takes less than half as long as the first one may be a duplicate of it, or the
/// answer of a peer that has become faster. Returns how long the answer to the retransmission may still be on its
/// way, to tell them apart; 0: the NAK is not a duplicate.
Nanos doubt_rnr_nak(const Context& context, Qp& qp) {
  Recovery& recovery = qp.recovery;
  if (recovery.rnr_resumed == 0 || recovery.rnr_psn != qp.requester.una) {
    const bool measured = qp.retransmission.rtt.measures(qp.requester.una);
    recovery.rnr_round_trip = measured ? std::min(qp.retransmission.rtt.elapsed(context.now), kLatest) : 0;
    return 0;
  }
  const Nanos elapsed = time_since(recovery.rnr_resumed, context.now), before = recovery.rnr_round_trip;
  recovery.rnr_round_trip = std::min(before, elapsed);
  return elapsed < before / 2 ? before - elapsed : 0;
}

/// False: none is left, and the oldest WQE has failed.
bool take_rnr_retry(Context& context, Qp& qp) {
  if (qp.retransmission.rnr_retries_left == 0) {
    ++context.counters.rnr_nak_retry_err;
    ++qp.counters.rnr_nak_retry_err;
    fail_send(context, qp, UROCE_FAIL_NO_RECEIVE);
    return false;
  }
  if (qp.requester.rnr_retry != 7) --qp.retransmission.rnr_retries_left;
  return true;
}

}  // namespace

void wait_for_receiver(Context& context, Qp& qp, std::uint8_t timer_code) {
  if (qp.retransmission.recovering == Recovering::kWaiting || is_old_rnr_nak(qp)) return;
  const Nanos doubt = doubt_rnr_nak(context, qp);
  qp.recovery.rnr_doubtful = doubt != 0;
  if (doubt == 0 && !take_rnr_retry(context, qp)) return;
  qp.retransmission.rtt.forget();
  rewind(context, qp);
  qp.retransmission.recovering = Recovering::kWaiting;
  qp.common.send_state = SendState::kBlocked;
  const Nanos delay = std::max(rnr_delay(timer_code), doubt);
  context.note_event(qp, QpEventType::kWaits, qp.requester.una, 0,
                     static_cast<std::uint32_t>(delay / kMicrosecond));
  context.set_deadline(qp, Deadline::kRnr, context.now + delay);
}

void on_rnr_timeout(Context& context, Qp& qp) {
  if (qp.retransmission.recovering != Recovering::kWaiting) return;  // there was progress in the meantime
  if (qp.recovery.rnr_doubtful && !take_rnr_retry(context, qp)) return;
  qp.retransmission.recovering = Recovering::kNo;
  qp.recovery.rnr_psn = qp.requester.una;
  qp.recovery.rnr_resumed = context.now;
  context.schedule_send(qp);
}

}  // namespace uroce::proto
