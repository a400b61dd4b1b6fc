// The completer: acknowledges and responses in, completions of send WQEs out, in the order they were posted.
#pragma once

#include "proto/state/context.h"

namespace uroce::proto::completer {

/// A response packet (ACK, NAK, READ response, atomic response) for an RC QP.
void receive(Context& context, Qp& qp, const wire::RxPacket& packet);

}  // namespace uroce::proto::completer
