// One device and its connection manager, in this process and at once: the calls of libibverbs and librdmacm that
// rsockets make. Both ends of each connection are here, so a write is a copy.
#pragma once

#include <cstdint>

namespace uroce::fake {

/// Objects that were made and not destroyed.
int objects();
/// Every QP of a connection stops answering: what is sent ends with an error.
void break_connections();

}  // namespace uroce::fake
