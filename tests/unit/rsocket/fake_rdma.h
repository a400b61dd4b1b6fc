// A device and its connection manager in this process: the functions of libibverbs and librdmacm that rsockets
// call. Both ends of each connection are here, so a write is a synchronous copy.
#pragma once

#include <cstdint>

namespace uroce::fake {

/// Number of objects that were created and not destroyed.
int objects();
/// All QPs of connections stop answering: sends complete with an error.
void break_connections();

}  // namespace uroce::fake
