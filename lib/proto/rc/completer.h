// The completer: receives acknowledges and responses, and completes send WQEs in the order in which they were
// posted (IBTA vol. 1, 9.7.6: Requester: Receiving Responses).
#pragma once

#include "proto/rc/acceptance.h"
#include "proto/state/context.h"
#include "wire/packet.h"

namespace uroce::proto::completer {

/// A response packet (ACK, NAK, READ response, atomic response) for an RC or XRC QP, whose ICRC is right.
void receive(Context& context, Qp& qp, const wire::RxPacket& packet, const Plan& plan);

}  // namespace uroce::proto::completer
