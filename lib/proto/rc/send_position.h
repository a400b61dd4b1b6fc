// Where in the send queue and in the sequence space the requester sends next, and how it goes back.
#pragma once

#include "proto/state/context.h"

namespace uroce::proto {

/// Goes back to una: everything that is not acknowledged is sent again.
void rewind(Context& context, Qp& qp);

/// Goes back to the packet that was sent last (of a READ, to its last request), which then requests an acknowledge.
/// False: it cannot be sent again, and nothing has changed.
bool rewind_last_packet(Context& context, Qp& qp);

/// Continues at una after a late acknowledge moved it past the packet that was to be sent next.
void skip_to_una(Qp& qp);

}  // namespace uroce::proto
