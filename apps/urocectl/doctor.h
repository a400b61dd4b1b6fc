// urocectl doctor: what is wrong here, and what to do.
#pragma once

#include <string>
#include <vector>

#include "options.h"

namespace uroce::ctl {

/// Returns the exit status: 0, or 4 if there is a problem.
int doctor(const Options& options, const std::vector<std::string>& devices);

}  // namespace uroce::ctl
