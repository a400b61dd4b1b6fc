// Receiving on UC and UD QPs, and what raw packet QPs need of it.
#pragma once

#include "proto/state/context.h"

namespace uroce::proto::unreliable {

/// A request for a UC QP. A message of which a packet is lost, or that may not be executed, is dropped; the next
/// one that starts is whole again (IBTA vol. 1, 9.8.2).
void receive_connected(Context& context, Qp& qp, const wire::RxPacket& packet);

/// A packet for a UD QP, or for a group that it is attached to. Dropped, and counted: a wrong Q_Key, no receive
/// WQE, or one that is too small, which then waits for the next message.
void receive_datagram(Context& context, Qp& qp, const wire::RxPacket& packet);

/// The receive WQE that a message needs: one that an earlier message left, or the next. False: there is none, or it
/// was bad, and that ended the QP.
bool claim_receive(Context& context, Qp& qp);

/// The program's memory isn't there: the receive ends, and the QP with it.
void fail_memory(Context& context, Qp& qp);

}  // namespace uroce::proto::unreliable
