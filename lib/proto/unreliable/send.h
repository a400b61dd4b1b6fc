// UC and UD: nothing is acknowledged, so a send is complete when its last packet is in a frame, and what is lost
// stays lost.
#pragma once

#include <cstdint>

#include "proto/state/context.h"

namespace uroce::proto::unreliable {

/// Sends up to `budget` packets (and counts it down). True: it could send more at once.
bool run(Context& context, Qp& qp, TxBurst& burst, std::uint32_t& budget);

/// A request for a UC QP. A message of which a packet is lost, or that may not be executed, is dropped; the next
/// one that starts is whole again (IBTA vol. 1, 9.8.2).
void receive_connected(Context& context, Qp& qp, const wire::RxPacket& packet);

/// A packet for a UD QP, or for a group that it is attached to. Dropped, and counted: a wrong Q_Key, no receive
/// WQE, or one that is too small, which then waits for the next message.
void receive_datagram(Context& context, Qp& qp, const wire::RxPacket& packet);

}  // namespace uroce::proto::unreliable
