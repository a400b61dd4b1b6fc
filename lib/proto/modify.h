// ibv_modify_qp(3): applies attributes, and the effects of a change of state (IBTA vol. 1, 10.3.1 and 11.2.5.2).
#pragma once

#include "proto/state/context.h"

namespace uroce::proto {

ModifyVerdict modify(Context& context, Qp& qp, const QpAttr& attr, std::uint32_t mask);

/// A message of a UD QP is a single packet of any length up to the port's MTU (IBTA vol. 1, 9.8.3).
void set_datagram_mtu(Qp& qp);

/// The state of a new QP: both queues empty, nothing outstanding.
void reset(Context& context, Qp& qp);

}  // namespace uroce::proto
