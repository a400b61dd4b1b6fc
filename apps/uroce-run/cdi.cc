#include "cdi.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <vector>

#include <nlohmann/json.hpp>

#include "urocectl/daemon_client.h"

namespace uroce::run {
namespace {

using Json = nlohmann::ordered_json;

bool is_alphanumeric(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

/// By CDI, and not the name that stands for all devices.
bool is_permitted(const std::string& name) {
  const auto is_inner = [](char c) { return is_alphanumeric(c) || c == '_' || c == '-' || c == '.'; };
  return !name.empty() && std::all_of(name.begin(), name.end(), is_inner) && is_alphanumeric(name.front()) &&
         is_alphanumeric(name.back()) && name != "all";
}

/// Read only: a program connects to the sockets in the run directory, which needs no more.
Json mount(const std::string& path) {
  return {{"hostPath", path}, {"containerPath", path}, {"options", Json::array({"ro", "nosuid", "nodev", "bind"})}};
}

/// CDI refuses a device that changes nothing, so "all" has the variable, too.
Json device(const std::string& name, const std::string& shown) {
  return {{"name", name}, {"containerEdits", Json::object({{"env", Json::array({"UROCE_DEVICES=" + shown})}})}};
}

}  // namespace

std::string cdi_specification(const Environment& environment, const std::string& program, std::string& problem) {
  const bool all = environment.devices.empty();
  const std::vector<std::string> devices = all ? ctl::served_devices(environment.run_dir) : environment.devices;
  Environment of_all = environment;
  of_all.devices.clear();
  Json variables = Json::array();
  for (const auto& [name, value] : of_all.of_any_program()) variables.push_back(name + "=" + value);
  Json list = Json::array();
  for (const std::string& name : std::set<std::string>(devices.begin(), devices.end())) {
    if (!is_permitted(name)) {
      problem =
          "--cdi: " + name +
          ": not a name for CDI; give the daemon a --name of letters, digits, '_', '-' and '.', with a letter "
          "or a digit at both ends, other than `all`";
      return {};
    }
    list.push_back(device(name, name));
  }
  if (all) list.push_back(device("all", ""));
  const Json hook = {{"hookName", "createContainer"},
                     {"path", program},
                     {"args", Json::array({program, "--run-dir", environment.run_dir, "--container-hook"})}};
  const Json edits = {{"env", std::move(variables)},
                      {"hooks", Json::array({hook})},
                      {"mounts", Json::array({mount(environment.libraries), mount(environment.run_dir)})}};
  const Json specification = {
      {"cdiVersion", "0.5.0"}, {"kind", "uroce/rdma"}, {"devices", std::move(list)}, {"containerEdits", edits}};
  try {
    return specification.dump(2) + "\n";
  } catch (const Json::type_error&) {
    problem = "--cdi: JSON takes paths in UTF-8 only; give another --run-dir";
    return {};
  }
}

}  // namespace uroce::run
