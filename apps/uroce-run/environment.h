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
  using Variables = std::vector<std::pair<std::string, std::string>>;

  std::string libraries;             ///< the folder of libibverbs.so.1 and librdmacm.so.1
  std::string run_dir;               ///< UROCE_RUN_DIR
  std::vector<std::string> devices;  ///< UROCE_DEVICES; empty: all

  /// What a program needs whose environment is not known: nothing of this process.
  Variables of_any_program() const;
  /// In this process.
  void set() const;
  /// As lines of a shell: export NAME='VALUE'.
  std::string text() const;

 private:
  using Lookup = const char* (*)(const char* name);
  Variables added_to(Lookup variable) const;
};

}  // namespace uroce::run
