// Configuration files and command lines of uroced.
//
// Input: the first byte's lowest bit selects; the rest is a TOML file (0), or arguments separated by zero bytes
// (1). What was accepted must be accepted again in the form in which --help and `show` print it, with the same
// result.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "apps/uroced/settings.h"

namespace {

using namespace uroce::uroced;

[[noreturn]] void fail(const char* what, const Knob& knob, const std::string& text) {
  std::fprintf(stderr, "%s: --%s \"%s\"\n", what, knob.flag, text.c_str());
  std::abort();
}

void check_printed_values(const Settings& settings) {
  Settings again;
  for (const Knob& knob : knobs()) {
    const std::vector<std::string> values = knob.show(settings);
    bool first = true;
    for (const std::string& value : values) {
      if (!apply(knob, again, value, first).empty()) fail("refused as it was printed", knob, value);
      first = false;
    }
    if (!values.empty() && knob.show(again) != values) fail("another value than was printed", knob, values[0]);
  }
}

void read_file(const std::uint8_t* data, std::size_t size) {
  const int file = ::memfd_create("settings", MFD_CLOEXEC);
  if (file < 0 || ::write(file, data, size) != static_cast<ssize_t>(size)) std::abort();
  Settings settings;
  const std::string error = read_config_file("/proc/self/fd/" + std::to_string(file), settings);
  ::close(file);
  if (error.empty()) check_printed_values(settings);
}

void read_arguments(const std::uint8_t* data, std::size_t size) {
  std::vector<std::string> words(1);
  for (std::size_t i = 0; i < size; ++i) {
    if (data[i] == 0) {
      words.emplace_back();
    } else {
      words.back().push_back(static_cast<char>(data[i]));
    }
  }
  std::vector<char*> arguments;
  for (std::string& word : words) {
    if (word.rfind("--config", 0) == 0) return;  // any file of the machine
    arguments.push_back(word.data());
  }
  CommandLine out;
  if (parse_command_line(arguments, out).empty() && !out.help && !out.version) check_printed_values(out.settings);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  if ((data[0] & 1) == 0) {
    read_file(data + 1, size - 1);
  } else {
    read_arguments(data + 1, size - 1);
  }
  return 0;
}
