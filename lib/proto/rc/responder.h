// The responder: receives requests, sends acknowledges, READ responses and atomic results (IBTA vol. 1, 9.7.4 and
// 9.7.5). receive() only marks what is owed; run() sends it, responses in PSN order and an acknowledge never before
// them.
#pragma once

#include <cstdint>

#include "proto/rc/acceptance.h"
#include "proto/state/context.h"
#include "wire/extended_headers.h"
#include "wire/frame_template.h"
#include "wire/packet.h"

namespace uroce::proto::responder {

/// A request packet for an RC or XRC QP, whose ICRC is right.
void receive(Context& context, Qp& qp, const wire::RxPacket& packet, const Plan& plan);

/// Builds a packet with an AETH in the burst, which is not full. False: its frame is too small.
bool send_acknowledge(Context& context, TxBurst& burst, const wire::FrameTemplate& path, const wire::Bth& bth,
                      std::uint8_t syndrome, Msn msn);

/// A sequence NAK is repeated after this time where no round trip is known.
inline constexpr Nanos kNakInterval = 400 * kMicrosecond;

/// A packet arrived with the ECN mark: a CNP is owed, at most one in kCnpInterval (annex A17: RoCEv2 congestion
/// management).
inline constexpr Nanos kCnpInterval = 50 * kMicrosecond;
void note_congestion(Context& context, Qp& qp, const wire::RxPacket& packet);

/// Sends up to `budget` packets of what is owed (and decrements it). True: there is more.
bool run(Context& context, Qp& qp, TxBurst& burst, std::uint32_t& budget);

inline bool owes(const Qp& qp) {
  return (static_cast<unsigned>(qp.responder.owed) | unsigned{qp.responder.answers_pending} |
          unsigned{qp.responder.cnp_owed}) != 0;
}

// --- between the responder's files ---

/// Takes the receive WQE that the message needs. False: there is none (RNR NAK) or it is malformed, and a NAK is
/// owed.
bool obtain_receive(Context& context, Qp& qp);

/// These execute a request as planned: its PSN is epsn.
void execute_send(Context& context, Qp& qp, const wire::RxPacket& packet);
void execute_write(Context& context, Qp& qp, const wire::RxPacket& packet, const Plan& plan);
void execute_read(Context& context, Qp& qp, const Plan& plan);
void execute_atomic(Context& context, Qp& qp, const wire::RxPacket& packet, const Plan& plan);
void execute_atomic_write(Context& context, Qp& qp, const wire::RxPacket& packet, const Plan& plan);
void execute_flush(Context& context, Qp& qp, const Plan& plan);

/// A READ or atomic that was executed before: answered again if it is known and is the same request, otherwise
/// dropped (IBTA vol. 1, 9.7.5: duplicate requests).
void repeat_read(Context& context, Qp& qp, const wire::RxPacket& packet);
void repeat_atomic(Context& context, Qp& qp, const wire::RxPacket& packet);
void repeat_confirmation(Context& context, Qp& qp, const wire::RxPacket& packet);
/// Whether a READ or atomic after this PSN is still known.
bool resource_after(const Qp& qp, Psn psn);

/// How many of the newest READs and atomics include all that are not answered.
std::uint32_t answers_needed(const Qp& qp);
/// Keeps the newest `count` READs and atomics of the peer, and has room for as many. All that are needed must be
/// among them.
void resize_answers(Qp& qp, std::uint8_t count);

/// Whether an answer that has not left reads memory under this key.
bool answer_uses(const Qp& qp, Key key);
/// Invalidates the key, and completes the receive of a SEND that is in memory.
void finish_invalidating_send(Context& context, Qp& qp, const HeldSend& send);

/// Sends READ and atomic responses. A response that is sent again ends silently if its key is gone: the requester
/// has the first one, or else its retries run out.
bool run_resources(Context& context, Qp& qp, TxBurst& burst, std::uint32_t& budget);

/// The packet, which takes `psns`, was executed: expects the next PSN, and acknowledges if requested.
void accept(Context& context, Qp& qp, bool ack_requested, std::uint32_t psns = 1);
/// A NAK for epsn, RNR or sequence error; sent once until the QP is back in sequence (IBTA vol. 1, 9.7.5.2).
void refuse(Context& context, Qp& qp, std::uint8_t syndrome);
/// A NAK for `psn` that ends the QP: once it is sent, the QP enters ERR and `event` is raised (IBTA vol. 1, 9.9.3).
void refuse_fatally(Context& context, Qp& qp, wire::Nak code, AsyncEvent event, Psn psn);
/// Ends the QP without a NAK for epsn, once what is owed for earlier requests has left (IBTA vol. 1, 9.9.6.3, class
/// J).
void end_silently(Context& context, Qp& qp);
inline void refuse_invalid(Context& context, Qp& qp) {
  ++context.counters.resp_invalid_requests;
  refuse_fatally(context, qp, wire::Nak::kInvalidRequest, AsyncEvent::kQpRequestError, qp.responder.epsn);
}
inline void refuse_access(Context& context, Qp& qp) {
  ++context.counters.resp_remote_access_errors;
  refuse_fatally(context, qp, wire::Nak::kRemoteAccess, AsyncEvent::kQpAccessError, qp.responder.epsn);
}

/// The syndrome of a positive acknowledge: the credits of a receive queue of the QP's own (IBTA vol. 1, 9.7.7.2),
/// once a SEND found no receive. Before that they would only delay a peer whose messages always find one.
inline std::uint8_t ack_syndrome(const Qp& qp) {
  if (!qp.receives.ran_out) return wire::kAckUnlimited;
  return wire::credit_code(qp.receives.ring.available());
}

/// Writes an AETH.
inline void emit_aeth(std::byte* to, std::uint8_t syndrome, Msn msn) { wire::Aeth{syndrome, msn}.emit(to); }

}  // namespace uroce::proto::responder
