// uroced: one RDMA device over one Ethernet port, in user space.
#include <signal.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include "apps/uroced/ports.h"
#include "apps/uroced/settings.h"

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

/// Creates the run directory before the port is opened: memif sockets are in it, too.
std::string make_run_dir(const std::string& path) {
  for (std::size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    if (::mkdir(part.c_str(), 0755) != 0 && errno != EEXIST) {
      return "can't make the run directory " + part + " (" + std::strerror(errno) +
             "): start as root, or give another with --run-dir";
    }
    if (slash == std::string::npos) return {};
  }
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
  const Settings& settings = line.settings;
  uroce::daemon::set_log_level(settings.log_level);
  handle_signals();
  if (std::string error = make_run_dir(settings.config.run_dir); !error.empty()) return fail(1, error);
  try {
    std::string error = uroce::daemon::serve(settings, stop);
    return error.empty() ? 0 : fail(1, error);
  } catch (const std::bad_alloc&) {
    return fail(1, "out of memory: lower --buffers, --max-qps or --workers");
  } catch (const std::exception& error) {
    return fail(1, error.what());
  }
}
