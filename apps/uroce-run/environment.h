// What a program needs in its environment to use uroce's libraries.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace uroce::run {

/// The folder of the two libraries: next to the program in a build tree, or the one that `meson install` uses.
/// Empty, with `problem`, if there is none.
std::string find_libraries(std::string& problem);

struct Environment {
  std::string libraries;             ///< the folder of libibverbs.so.1 and librdmacm.so.1
  std::string run_dir;               ///< UROCE_RUN_DIR
  std::vector<std::string> devices;  ///< UROCE_DEVICES; empty: all

  /// In this process.
  void set() const;
  /// As lines of a shell: export NAME='VALUE'.
  std::string text() const;

 private:
  std::vector<std::pair<std::string, std::string>> variables() const;
};

}  // namespace uroce::run
