#include "environment.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace uroce::run {
namespace {

/// By which collectives find libibverbs when it is not to be the system's.
constexpr const char* kLoaderVariables[] = {"NCCL_IBVERBS_LIB", "MSCCLPP_IBV_SO", "IBVERBX_IBVERBS_SO"};

const char* own_variable(const char* name) { return std::getenv(name); }
const char* no_variable(const char*) { return nullptr; }

std::string library_path(const std::string& libraries, const char* old) {
  if (old == nullptr || *old == 0) return libraries;
  return (std::string(old) + ":").starts_with(libraries + ":") ? old : libraries + ":" + old;
}

std::string quoted(const std::string& value) {
  std::string text = "'";
  for (const char c : value) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

}  // namespace

std::string find_libraries(std::string& problem) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path here = fs::read_symlink("/proc/self/exe", error).parent_path();
  std::vector<fs::path> places = {here / "lib"};
  // An installation may be moved as a whole (DESTDIR).
  for (const char* sub : {"lib", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib64"}) {
    places.push_back(here.parent_path() / sub / "uroce");
  }
  places.emplace_back(UROCE_LIBRARY_DIR);
  for (const fs::path& place : places) {
    if (fs::exists(place / "libibverbs.so.1", error)) return place;
    if (!error) continue;
    problem = place.string() + ": " + error.message() + "; users of uroce-run need read access to this folder";
    return {};
  }
  problem = "no libibverbs.so.1 in " + places.front().string() + " nor in " + places.back().string() +
            "; build it with `./quickstart.sh build`, or install it with `meson install -C build`";
  return {};
}

Environment::Variables Environment::added_to(Lookup variable) const {
  Variables all{{"LD_LIBRARY_PATH", library_path(libraries, variable("LD_LIBRARY_PATH"))},
                {"UROCE_RUN_DIR", run_dir}};
  std::string list;
  for (const std::string& name : devices) list += (list.empty() ? "" : ",") + name;
  if (!list.empty()) all.emplace_back("UROCE_DEVICES", list);
  for (const char* const name : kLoaderVariables) {
    const char* const chosen = variable(name);
    all.emplace_back(name, chosen != nullptr ? chosen : libraries + "/libibverbs.so.1");
  }
  return all;
}

Environment::Variables Environment::of_any_program() const { return added_to(no_variable); }

void Environment::set() const {
  for (const auto& [name, value] : added_to(own_variable)) setenv(name.c_str(), value.c_str(), 1);
}

std::string Environment::text() const {
  std::string lines;
  for (const auto& [name, value] : added_to(own_variable)) lines += "export " + name + "=" + quoted(value) + "\n";
  return lines;
}

}  // namespace uroce::run
