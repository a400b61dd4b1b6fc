#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <system_error>

#include "apps/uroced/settings.h"
#include "control/machine/icrc_choice.h"
#include "platform/run_dir.h"

namespace uroce::uroced {
namespace {

const Knob* find_flag(std::string_view name) {
  for (const Knob& knob : knobs()) {
    if (name == knob.flag) return &knob;
  }
  return nullptr;
}

std::string unknown_flag(std::string_view name) {
  std::vector<std::string> names{"check", "config", "help", "version"};
  for (const Knob& knob : knobs()) names.emplace_back(knob.flag);
  const std::string near = nearest(name, names);
  return "there is no flag --" + std::string(name) + (near.empty() ? "." : "; did you mean --" + near + "?") +
         " See uroced --help";
}

struct Given {
  const Knob* knob;
  std::string value;
};

/// Splits the arguments into flags and values. --config goes to `config`.
std::string split(std::span<char* const> arguments, std::vector<Given>& given, std::string& config,
                  CommandLine& out) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string_view text = arguments[i];
    if (text == "-h") text = "--help";
    if (text.substr(0, 2) != "--")
      return "\"" + std::string(text) + "\" is not a flag: uroced takes flags only, see --help";
    text.remove_prefix(2);
    const std::size_t equals = text.find('=');
    const std::string_view name = text.substr(0, equals);
    if (name == "help" || name == "version" || name == "check") {
      (name == "help" ? out.help : name == "check" ? out.check : out.version) = true;
      continue;
    }
    const Knob* knob = find_flag(name);
    if (knob == nullptr && name != "config") return unknown_flag(name);
    const bool takes_value = knob == nullptr || knob->argument != nullptr;
    if (!takes_value && equals != std::string_view::npos) return "--" + std::string(name) + " takes no value";
    std::string value = "false";
    if (takes_value && equals != std::string_view::npos) {
      value = text.substr(equals + 1);
    } else if (takes_value) {
      if (i + 1 == arguments.size()) return "--" + std::string(name) + " needs a value, see --help";
      value = arguments[++i];
    }
    if (knob == nullptr) {
      config = value;
    } else {
      given.push_back({knob, value});
    }
  }
  return {};
}

}  // namespace

std::string parse_command_line(std::span<char* const> arguments, CommandLine& out) {
  out.settings.config.run_dir = daemon_run_dir();
  std::vector<Given> given;
  std::string config;
  if (std::string error = split(arguments, given, config, out); !error.empty()) return error;
  if (out.help || out.version) return {};
  std::error_code unknown;
  if (out.again && !config.empty() && !std::filesystem::is_regular_file(config, unknown)) {
    return "--config " + config + ": it is no longer a file";
  }
  if (!config.empty()) {
    if (std::string error = read_config_file(config, out.settings); !error.empty()) return error;
  }
  std::set<const Knob*> seen;
  for (const auto& [knob, value] : given) {
    const std::string allowed = apply(*knob, out.settings, value, seen.insert(knob).second);
    if (!allowed.empty()) return "--" + std::string(knob->flag) + " \"" + value + "\": it must be " + allowed;
  }
  return out.settings.devices.empty() ? check_settings(out.settings) : "";  // or those of each device
}

std::string help_text() {
  std::string text =
      "Usage: uroced [FLAG]...\n"
      "Runs an RDMA device (RoCEv2) over an Ethernet port, or several on a switch in memory, for programs that\n"
      "uroce-run starts.\n\n"
      "  --config FILE\n      read a configuration file (TOML) first; flags override it\n";
  const Settings defaults;
  for (const Knob& knob : knobs()) {
    text += "  --" + std::string(knob.flag) + (knob.argument == nullptr ? "" : " " + std::string(knob.argument));
    text += "\n      " + std::string(knob.help);
    if (knob.repeats) text += "; may be given several times";
    const std::vector<std::string> values = knob.show(defaults);
    if (knob.argument != nullptr && !values.empty() && !values[0].empty()) text += " (default " + values[0] + ")";
    text += "\n";
  }
  text +=
      "  --check\n      say whether the settings are valid on this machine, and start nothing\n"
      "  --version\n      print the version\n"
      "  --help\n      print this\n\n"
      "Numbers of bytes take k, M and G. SIGINT and SIGTERM end it; SIGHUP has it read its settings again, as\n"
      "urocectl reload does, or ends it if its input is a terminal. Exit code 1: it could not start; 2: wrong "
      "usage.\n\n"
      "Environment: UROCE_RUN_DIR changes the default of --run-dir. UROCE_ICRC=NAME has the ICRC computed by "
      "another "
      "engine\nthan the fastest that the CPU supports, one of " +
      control::crc_engine_names([](const wire::CrcEngine&) { return true; }) +
      ".\n\n"
      "Examples:\n"
      "  uroced --name uroce0 --port loopback --ip 192.0.2.1/24\n"
      "  uroced --hosts 2 --ip 192.0.2.1/24\n"
      "  uroced --name uroce0 --port udp --ip 192.0.2.1/24\n"
      "  uroced --name uroce0 --port net_memif0,role=server,socket=/run/uroce/memif.sock --ip 192.0.2.1/24\n"
      "  uroced --name uroce1 --port net_memif0,role=client,socket=/run/uroce/memif.sock --ip 192.0.2.2/24\n";
  return text;
}

}  // namespace uroce::uroced
