// Receiving on UC and UD QPs, and the parts that raw packet QPs share with them.
#pragma once

#include "proto/state/context.h"
#include "wire/packet.h"

namespace uroce::proto::unreliable {

/// A request for a UC QP. A message that lost a packet, or that may not be executed, is dropped; the next FIRST or
/// ONLY packet starts a new one (IBTA vol. 1, 9.8.2).
void receive_connected(Context& context, Qp& qp, const wire::RxPacket& packet);

/// A packet for a UD QP, or for a group to which it is attached (IBTA vol. 1, 9.8.3). Dropped and counted: a wrong
/// Q_Key, no receive WQE, or a receive WQE that is too small, which stays for the next message.
void receive_datagram(Context& context, Qp& qp, const wire::RxPacket& packet);

/// Takes the receive WQE that the message needs: one left by an earlier message, or the next. False: there is none,
/// or it was malformed and the QP entered ERR.
bool claim_receive(Context& context, Qp& qp);

/// The receive's memory is not accessible: the receive fails, and the QP enters ERR.
void fail_memory(Context& context, Qp& qp);

}  // namespace uroce::proto::unreliable
