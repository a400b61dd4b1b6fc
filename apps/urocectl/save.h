// urocectl save: a configuration file with the settings in force.
#pragma once

#include <string>

#include "daemon_client.h"

namespace uroce::ctl {

/// TOML with the settings that differ from their defaults, from the rows of `show settings`.
std::string configuration(const Json& settings);

/// Writes the text to a file that does not exist yet. Returns empty, or why it could not.
std::string write_new_file(const std::string& path, const std::string& text);

}  // namespace uroce::ctl
