// A live page for browsers.
#pragma once

#include "urocectl/options.h"

namespace uroce::ctl {

/// Serves until SIGINT, SIGTERM or SIGHUP, and ends the program with status 0 then. Returns the exit status of a
/// failure.
int web(const Options& options);

}  // namespace uroce::ctl
