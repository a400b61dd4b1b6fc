// ibv_modify_qp: attributes into state, and what a change of state sets off.
#pragma once

#include "proto/state/context.h"

namespace uroce::proto {

ModifyVerdict modify(Context& context, Qp& qp, const QpAttr& attr, std::uint32_t mask);

/// A message of a UD QP is one packet, however long; the port's MTU is what limits it.
void set_datagram_mtu(Qp& qp);

/// As just made: both queues empty, nothing outstanding.
void reset(Context& context, Qp& qp);

}  // namespace uroce::proto
