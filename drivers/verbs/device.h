// Devices and their contexts.
#pragma once

#include <string>

#include "objects.h"

namespace uroce::verbs {

/// Drops one reference; the last one frees the device.
void release(Device* device);
std::string name_of(ibv_context* context);

/// Fills the function pointers that the inline verbs of infiniband/verbs.h call (operations.cc).
void fill_operations(Context& context);

}  // namespace uroce::verbs
