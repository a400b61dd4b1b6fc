// uroced: RDMA devices in user space, over an Ethernet port or a switch in memory.
#include <signal.h>

#include <atomic>
#include <cstdio>
#include <exception>
#include <string>

#include "apps/uroced/confine.h"
#include "apps/uroced/ports.h"
#include "apps/uroced/settings.h"
#include "base/version.h"
#include "control/icrc_choice.h"
#include "control/run_dir.h"

namespace {

using uroce::daemon::CommandLine;
using uroce::daemon::Settings;

std::atomic<bool> stop{false};

void on_signal(int) { stop.store(true, std::memory_order_relaxed); }

void handle_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

int fail(int code, const std::string& error) {
  std::fprintf(stderr, "uroced: %s\n", error.c_str());
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line;
  if (std::string error = uroce::daemon::parse_command_line({argv + 1, static_cast<std::size_t>(argc - 1)}, line);
      !error.empty()) {
    return fail(2, error);
  }
  if (line.help) return std::fputs(uroce::daemon::help_text().c_str(), stdout), 0;
  if (line.version) return std::puts("uroced " UROCE_VERSION), 0;
  if (const std::string error = uroce::daemon::choose_icrc_engine(); !error.empty()) return fail(2, error);
  const Settings& settings = line.settings;
  if (const std::string error = uroce::daemon::check_cpus(settings); !error.empty()) return fail(2, error);
  uroce::daemon::set_log_level(settings.log_level);
  handle_signals();
  if (settings.sandbox) uroce::daemon::forbid_new_privileges();
  // Before the port is opened: memif sockets are in it, too.
  if (const absl::Status made = uroce::daemon::make_run_dir(settings.config.run_dir); !made.ok()) {
    return fail(1, std::string(made.message().data(), made.message().size()));
  }
  try {
    std::string error = uroce::daemon::serve(settings, stop);
    return error.empty() ? 0 : fail(1, error);
  } catch (const std::bad_alloc&) {
    return fail(1, "out of memory: lower --buffers, --max-qps or --workers");
  } catch (const std::exception& error) {
    return fail(1, error.what());
  }
}
