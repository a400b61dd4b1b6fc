#pragma once

#include <cstddef>

namespace uroce::worker::testing {

/// Calls of operator new in this program so far.
std::size_t allocations();

}  // namespace uroce::worker::testing
