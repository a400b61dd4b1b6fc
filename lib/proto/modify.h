// ibv_modify_qp: attributes into state, and what a change of state sets off.
#pragma once

#include "proto/core.h"

namespace uroce::proto {

ModifyVerdict modify(Core& core, Qp& qp, const QpAttr& attr, std::uint32_t mask);

/// As just made: both queues empty, nothing outstanding.
void reset(Core& core, Qp& qp);

}  // namespace uroce::proto
