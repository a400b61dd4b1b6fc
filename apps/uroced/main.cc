// uroced: RDMA devices in user space, over an Ethernet port or a switch in memory.
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <exception>
#include <span>
#include <string>

#include "apps/uroced/confine.h"
#include "apps/uroced/devices.h"
#include "apps/uroced/ports.h"
#include "apps/uroced/settings.h"
#include "base/version.h"
#include "control/machine/icrc_choice.h"
#include "control/machine/run_dir.h"
#include "daemon/daemon.h"

namespace {

using uroce::uroced::CommandLine;
using uroce::uroced::Settings;

uroce::uroced::Requests requests;
std::atomic<int> stopped_by{0};

void on_signal(int number) {
  stopped_by.store(number, std::memory_order_relaxed);
  requests.stop.store(true, std::memory_order_relaxed);
}

void on_hangup(int) { requests.reload.store(true, std::memory_order_relaxed); }

void handle_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  // Of a terminal that is closed, or a request.
  if (::isatty(STDIN_FILENO) == 0) action.sa_handler = on_hangup;
  ::sigaction(SIGHUP, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

int fail(int code, const std::string& error) {
  std::fprintf(stderr, "uroced: %s\n", error.c_str());
  return code;
}

std::string reread(std::span<char* const> arguments, Settings& out) {
  CommandLine line;
  line.again = true;
  if (std::string error = uroce::uroced::parse_command_line(arguments, line); !error.empty()) return error;
  if (std::string error = uroce::uroced::check_cpus(line.settings); !error.empty()) return error;
  out = line.settings;
  return uroce::uroced::validate(out);
}

int check(const Settings& settings) {
  if (const std::string error = uroce::uroced::validate(settings); !error.empty()) return fail(2, error);
  if (const std::string error = uroce::uroced::check_netdev_rights(settings); !error.empty()) return fail(2, error);
  std::printf("uroced: the settings are valid: %s\n", uroce::uroced::summary(settings).c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line;
  if (std::string error = uroce::uroced::parse_command_line({argv + 1, static_cast<std::size_t>(argc - 1)}, line);
      !error.empty()) {
    return fail(2, error);
  }
  if (line.help) return std::fputs(uroce::uroced::help_text().c_str(), stdout), 0;
  if (line.version) return std::puts("uroced " UROCE_VERSION), 0;
  if (const std::string error = uroce::control::choose_icrc_engine(); !error.empty()) return fail(2, error);
  const Settings& settings = line.settings;
  if (const std::string error = uroce::uroced::check_cpus(settings); !error.empty()) return fail(2, error);
  if (const std::string error = uroce::uroced::check_fault(settings); !error.empty()) return fail(2, error);
  if (line.check) return check(settings);
  uroce::platform::set_log_level(settings.log_level);
  handle_signals();
  uroce::daemon::raise_descriptor_limit();
  requests.reread = [&](Settings& next) { return reread({argv + 1, static_cast<std::size_t>(argc - 1)}, next); };
  if (settings.sandbox) uroce::uroced::forbid_new_privileges();
  // Before the port is opened: memif sockets are in it, too.
  if (const std::string error = uroce::uroced::check_user(settings); !error.empty()) return fail(1, error);
  for (const Settings& device : uroce::uroced::devices_of(settings)) {
    const absl::Status made = uroce::control::make_run_dir(device.config.run_dir, uroce::uroced::user_of(settings));
    if (!made.ok()) return fail(1, std::string(made.message().data(), made.message().size()));
  }
  try {
    if (const std::string error = uroce::uroced::serve(settings, requests); !error.empty()) return fail(1, error);
    const int number = stopped_by.load(std::memory_order_relaxed);
    uroce::platform::log(uroce::platform::LogLevel::kInfo, "stopped by SIG%s", ::sigabbrev_np(number));
    return 0;
  } catch (const std::bad_alloc&) {
    return fail(1, "out of memory: lower --buffers, --max-qps or --workers");
  } catch (const std::exception& error) {
    return fail(1, error.what());
  }
}
