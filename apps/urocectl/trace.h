// urocectl trace: the frames of a port, as lines of text or in pcapng files.
#pragma once

#include <string>

#include "options.h"

namespace uroce::ctl {

/// Until Ctrl-C, or as many frames as the options want. Returns the exit status; 3: frames are missing.
int trace(const Options& options, const std::string& device);

}  // namespace uroce::ctl
