// urocectl play: carries out a scenario, and then undoes it.
#pragma once

#include "options.h"

namespace uroce::ctl {

/// The exit status. Ctrl-C ends it early.
int play(const Options& options);

}  // namespace uroce::ctl
