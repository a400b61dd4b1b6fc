// urocectl top: rates of devices, workers and QPs, again and again.
#pragma once

#include <string>
#include <vector>

#include "options.h"

namespace uroce::ctl {

/// Until q or Ctrl-C; without a terminal, or with --json, one round after the other. Returns the exit status.
int top(const Options& options, const std::vector<std::string>& devices);

}  // namespace uroce::ctl
