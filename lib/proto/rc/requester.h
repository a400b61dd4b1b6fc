// The requester: turns send WQEs into request packets, within the window, and goes back when told to.
#pragma once

#include <cstdint>

#include "proto/state/context.h"

namespace uroce::proto::requester {

/// Sends up to `budget` packets (and counts it down). True: it could send more at once.
bool run(Context& context, Qp& qp, TxBurst& burst, std::uint32_t& budget);

/// The next packet is that at una: all that is unacknowledged goes out again.
void rewind(Context& context, Qp& qp);

/// The next packet is the one that left last (of a READ, its last request), and it asks for an acknowledge. False:
/// it can't be sent again, and nothing changed.
bool rewind_last_packet(Context& context, Qp& qp);

/// After una moved past what is sent next (a late acknowledge during a retransmission): goes on behind it.
void skip_to_una(Qp& qp);

/// What blocked the requester may have gone.
inline void resume(Context& context, Qp& qp) {
  if (qp.send_state == SendState::kBlocked) context.schedule_send(qp);
}

/// Packet costs, in window bytes.
constexpr std::uint32_t cost_of(std::uint32_t bytes, std::uint32_t packets) {
  return bytes + packets * kPacketCost;
}

/// PSNs from `from` up to `to`.
constexpr std::uint32_t psns_between(Psn from, Psn to) { return (to.value() - from.value()) & Psn::kMask; }

}  // namespace uroce::proto::requester
