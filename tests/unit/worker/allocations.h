#pragma once

#include <cstddef>

namespace uroce::daemon::testing {

/// Calls of operator new in this program so far.
std::size_t allocations();

}  // namespace uroce::daemon::testing
