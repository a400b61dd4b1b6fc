#include "drivers/packet/dpdk/eal.h"

#include <pthread.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_log.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

#include "drivers/packet/dpdk/interrupts_held.h"

namespace uroce::dpdk {
namespace {

/// What DPDK logs. The first error is kept for our own one-line messages: those that follow only pass it on.
struct LogKeeper {
  std::mutex mutex;
  std::string first_error;
  bool verbose = false;
};
LogKeeper& log_keeper() {
  static LogKeeper keeper;
  return keeper;
}

ssize_t keep_log(void*, const char* text, std::size_t bytes) {
  LogKeeper& keeper = log_keeper();
  std::lock_guard lock(keeper.mutex);
  if (keeper.verbose) ::fwrite(text, 1, bytes, stderr);
  std::string_view line(text, bytes);
  while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back())) != 0) line.remove_suffix(1);
  const bool error = rte_log_cur_msg_loglevel() <= static_cast<int>(RTE_LOG_ERR);
  if (!line.empty() && error && keeper.first_error.empty()) keeper.first_error = line;
  return static_cast<ssize_t>(bytes);
}

std::uint64_t free_hugepages_mib() {
  std::ifstream file("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
  std::uint64_t pages = 0;
  file >> pages;
  return pages * 2;
}

/// EAL's one lcore floats over all CPUs that we may use.
std::string lcores_argument(const cpu_set_t& allowed) {
  std::string list;
  for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) list += (list.empty() ? "" : ",") + std::to_string(cpu);
  }
  return "0@(" + list + ")";
}

std::vector<std::string> arguments(const EalOptions& options, bool hugepages, const cpu_set_t& allowed) {
  std::vector<std::string> args{options.name, "--no-telemetry", "--lcores", lcores_argument(allowed)};
  if (hugepages) {
    args.insert(args.end(), {"--in-memory", "--single-file-segments"});
  } else {  // both of these want hugepages
    args.insert(args.end(), {"--no-shconf", "--no-huge", "-m", std::to_string(options.memory_mib)});
    args.insert(args.end(), {"--file-prefix", "uroced-" + std::to_string(::getpid())});
  }
  if (is_pci_address(options.port)) {
    args.insert(args.end(), {"-a", options.port});
  } else {
    args.insert(args.end(), {"--no-pci", "--iova-mode=va"});
  }
  args.push_back(options.verbose ? "--log-level=*:info" : "--log-level=*:error");
  return args;
}

}  // namespace

bool is_pci_address(std::string_view port) {
  if (port.size() == 12 && port[4] == ':') port.remove_prefix(5);
  if (port.size() != 7 || port[2] != ':' || port[5] != '.') return false;
  for (const std::size_t i : {0, 1, 3, 4, 6}) {
    if (std::isxdigit(static_cast<unsigned char>(port[i])) == 0) return false;
  }
  return true;
}

bool driven_by_uio(std::string_view address) {
  const std::string name = (address.size() == 12 ? "" : "0000:") + std::string(address);
  std::error_code error;
  const std::filesystem::path driver =
      std::filesystem::read_symlink("/sys/bus/pci/devices/" + name + "/driver", error);
  return driver.filename().string().find("uio") != std::string::npos;
}

std::string take_error() {
  LogKeeper& keeper = log_keeper();
  std::lock_guard lock(keeper.mutex);
  return std::exchange(keeper.first_error, {});
}

std::string Eal::start(const EalOptions& options) {
  log_keeper().verbose = options.verbose;
  FILE* stream =
      ::fopencookie(nullptr, "w", {.read = nullptr, .write = keep_log, .seek = nullptr, .close = nullptr});
  if (stream != nullptr) {
    ::setvbuf(stream, nullptr, _IOLBF, 1024);
    rte_openlog_stream(stream);
  }
  const std::uint64_t free_mib = free_hugepages_mib();
  hugepages_ = options.hugepages && free_mib >= options.memory_mib;
  if (!options.hugepages) {
    why_not_ = "switched off";
  } else if (!hugepages_) {
    why_not_ = std::to_string(options.memory_mib) + " MiB wanted, " + std::to_string(free_mib) + " MiB free";
  }

  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  ::pthread_getaffinity_np(::pthread_self(), sizeof(allowed), &allowed);
  std::vector<std::string> args = arguments(options, hugepages_, allowed);
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  const int result = rte_eal_init(static_cast<int>(argv.size()), argv.data());
  ::pthread_setaffinity_np(::pthread_self(), sizeof(allowed), &allowed);
  if (result >= 0) {
    started_ = true;
    return {};
  }
  const std::string said = take_error();
  return "DPDK does not start (" + (said.empty() ? std::string(rte_strerror(rte_errno)) : said) +
         "): try --no-hugepages, or --log-level debug to see all that it says";
}

Eal::~Eal() {
  if (!started_) return;
  static const auto* const till_the_end = new InterruptsHeld;  // never released: EAL does not end the thread
  (void)till_the_end;
  rte_eal_cleanup();
}

}  // namespace uroce::dpdk
