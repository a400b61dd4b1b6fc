// Everything that uroced can be told, by flag or by configuration file, as one table of knobs: name, default, unit
// and parser of each. Flags, the file's keys, --help and the suggestions in error messages all come from the table.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "control/config.h"
#include "platform/log.h"
#include "wire/packet.h"

namespace uroce::daemon {

struct Settings {
  daemon::DaemonConfig config;
  std::string port = "loopback";
  std::vector<wire::Address> gateways;
  std::optional<wire::Mac> mac;
  std::uint32_t workers = 1;
  bool hugepages = true;
  std::uint32_t buffers = 4096;
  std::string fault = "off";
  std::string pcap;
  daemon::LogLevel log_level = daemon::LogLevel::kInfo;
};

struct Knob {
  const char* flag;      ///< without the dashes
  const char* argument;  ///< what --help calls the value; nullptr: the flag takes none and means "false"
  const char* key;       ///< in the configuration file; tables with a dot
  bool repeats;          ///< given several times, an array in the file
  const char* help;
  /// Sets it from text. Returns what is allowed when the text is not; empty: done.
  std::string (*set)(Settings& settings, std::string_view text);
  /// The value as text, one for each element.
  std::vector<std::string> (*show)(const Settings& settings);
};

std::span<const Knob> knobs();

/// What is set with a flag or key for the first time replaces what was there before (a list is emptied).
std::string apply(const Knob& knob, Settings& settings, std::string_view text, bool first);

/// The name among `names` that is closest to `text`; empty: none is near.
std::string nearest(std::string_view text, const std::vector<std::string>& names);

struct CommandLine {
  Settings settings;
  bool help = false, version = false;
};

/// Reads the flags, and the file that --config names before them. An error says what, why and what to do; empty:
/// good.
std::string parse_command_line(std::span<char* const> arguments, CommandLine& out);

/// Reads a configuration file into `settings`.
std::string read_config_file(const std::string& path, Settings& settings);

std::string help_text();

}  // namespace uroce::daemon
