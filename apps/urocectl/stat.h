// `urocectl stat`: counters, from the daemon or from its page of counters.
#pragma once

#include <string>
#include <vector>

#include "options.h"

namespace uroce::ctl {

/// Returns the exit status. A daemon that does not answer is a failure; what its page has is printed nevertheless.
int stat(const Options& options, const std::vector<std::string>& names);

}  // namespace uroce::ctl
