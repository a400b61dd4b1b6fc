// The settings of uroced, as one table: name, default, unit and parser of each. Command line flags, keys of the
// configuration file, --help and the suggestions in error messages come from this table.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "control/machine/config.h"
#include "control/state/process.h"
#include "platform/log.h"
#include "wire/address.h"

namespace uroce::uroced {

struct Settings {
  control::DaemonConfig config;
  std::string port = "loopback";
  std::vector<wire::Address> gateways;
  std::optional<wire::Mac> mac;
  std::uint32_t workers = 1;
  std::uint32_t hosts = 1;           ///< devices on a switch in memory
  std::vector<std::string> devices;  ///< what each of them has of its own: "KEY=VALUE,...", see apply_device()
  bool hugepages = true;
  std::uint32_t buffers = 4096;
  std::string fault = "off";
  std::string pcap;
  platform::LogLevel log_level = platform::LogLevel::kInfo;
  bool sandbox = true;  ///< give up capabilities and system calls that serving does not need
  std::string user;     ///< to change to once the port is open; empty: none
};

struct Knob {
  const char* flag;      ///< without the dashes
  const char* argument;  ///< name of the value in --help
  const char* key;       ///< in the configuration file; a dot separates table and key
  bool repeats;          ///< may be given several times; an array in the file
  const char* help;
  /// Sets the value from text. Returns empty, or what is allowed.
  std::string (*set)(Settings& settings, std::string_view text);
  /// The value as text, one string for each element.
  std::vector<std::string> (*show)(const Settings& settings);
};

std::span<const Knob> knobs();

/// Sets one value. The first flag or key for a list replaces its default.
std::string apply(const Knob& knob, Settings& settings, std::string_view text, bool first);

/// The name that is most similar to `text`; empty if none is.
std::string nearest(std::string_view text, const std::vector<std::string>& names);

struct CommandLine {
  Settings settings;
  bool help = false, version = false, check = false;
  bool again = false;  ///< given by the caller: while it serves, so that a pipe as file must not block it
};

/// Reads the file that --config names, then the flags. Returns empty, or what is wrong, why, and what to do.
std::string parse_command_line(std::span<char* const> arguments, CommandLine& out);

/// Reads a configuration file into `settings`. Returns empty, or what is wrong.
std::string read_config_file(const std::string& path, Settings& settings);

/// Empty, or which addresses or gateways make no device together. parse_command_line() calls it.
std::string check_settings(const Settings& settings);
/// The error for a --netdev with a port that is an interface of the kernel itself.
std::string second_netdev(const std::string& netdev, const std::string& port);
/// Empty, or which CPU of --cpus this process can't use.
std::string check_cpus(const Settings& settings);

/// Whether a new value takes effect without a restart.
bool changes_live(const Knob& knob, const Settings& settings);
struct Adopted {
  std::vector<std::string> changed;  ///< keys of settings that were taken over
  std::vector<std::string> waiting;  ///< and of those that differ and take effect at the start only
};
std::vector<control::Setting> list_settings(const Settings& current);
/// Takes over the settings of `next` that change without a restart.
Adopted adopt(Settings& current, const Settings& next);

std::string help_text();

}  // namespace uroce::uroced
