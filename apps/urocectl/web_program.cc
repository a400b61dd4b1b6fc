#include "web_program.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "options.h"

namespace uroce::ctl {
namespace {

constexpr const char* kName = "uroce-web";

/// Folders that may have it: that of the build, of an installation that was moved as a whole (DESTDIR), as
/// configured.
std::vector<std::filesystem::path> places() {
  std::vector<std::filesystem::path> all;
  std::error_code error;
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  // Without /proc the path would be relative: a file of the current folder.
  if (here.is_absolute()) all = {here, here.parent_path() / "libexec/uroce"};
  if (std::ranges::find(all, UROCE_PROGRAM_DIR) == all.end()) all.emplace_back(UROCE_PROGRAM_DIR);
  return all;
}

}  // namespace

void become_web_program(char** argv) {
  std::string missing;
  for (const std::filesystem::path& place : places()) {
    const std::string program = place / kName;
    ::execv(program.c_str(), argv);
    const int problem = errno;
    if (problem != ENOENT && problem != ENOTDIR)
      fail(1, program + ": " + std::strerror(problem) + "; urocectl web starts this program, as this user");
    missing += (missing.empty() ? "web: no uroce-web in " : " nor in ") + place.string();
  }
  fail(1, missing + "; install the package uroce-web, or libcpp-httplib-dev and build uroce again");
}

}  // namespace uroce::ctl
