// Runs a script against its world, line by line, in virtual time.
#pragma once

#include <string>

#include "tests/script/script.h"

namespace uroce::script {

struct Result {
  bool passed = false;
  std::string message;  ///< why it failed; of a script that fails as marked, how it did
};

/// A script that is marked to fail passes if it fails at the mark or after it.
Result run(const Script& script);
/// A file that can't be read or parsed fails.
Result run_file(const std::string& path);
Result run_text(const std::string& name, std::string_view text);

}  // namespace uroce::script
