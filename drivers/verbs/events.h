// Asynchronous events.
#pragma once

#include "objects.h"

namespace uroce::verbs {

/// Removes the waiting events of objects that are no longer in the context's maps. Not in a forked child, which
/// shares the socket with its parent.
void discard_async_events(Context& owner);

}  // namespace uroce::verbs
